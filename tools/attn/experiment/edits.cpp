#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "common/inputs.hpp"
#include "experiment/experiment.hpp"

namespace attn::tool {
namespace {

struct Place {
  std::int64_t layer = 0;
  std::optional<std::int64_t> head;
};

// "3.1" is head 1 of layer 3, "4" a layer; both count from 1 here, and from 0 in what is returned.
Place place_of(std::string_view text, const char* flag, const LanguageModelConfig& c, bool needs_head) {
  const auto layers = std::ssize(c.layers);
  const std::size_t dot = text.find('.');
  const auto layer = number_in<std::int64_t>(text.substr(0, dot));
  const bool has_head = dot != std::string_view::npos;
  const auto head = has_head ? number_in<std::int64_t>(text.substr(dot + 1)) : std::nullopt;
  const bool is_layer = layer && *layer >= 1 && *layer <= layers;
  const std::int64_t heads = is_layer ? c.heads_of(*layer - 1) : c.most_heads();
  const bool fits = is_layer && (has_head ? head && *head >= 1 && *head <= heads : !needs_head);
  if (is_layer && has_head && !fits) {
    refuse(flag, formatted("a head of layer {}, from {}.1 to {}.{}", *layer, *layer, *layer, heads), text);
  }
  if (!fits) {
    refuse(flag,
           formatted("{} of {} layers of {} heads, such as {}", needs_head ? "a head" : "a head or a layer", layers,
                     heads, needs_head ? "1.2, head 2 of layer 1" : "1.2, head 2 of layer 1, or 3, all of layer 3"),
           text);
  }
  return {*layer - 1, has_head ? std::optional(*head - 1) : std::nullopt};
}

// "3.1=0.5" → its two sides.
std::pair<std::string_view, std::string_view> sides(std::string_view text, const char* flag, const char* example) {
  const std::size_t at = text.rfind('=');
  if (at == std::string_view::npos || at == 0) refuse(flag, formatted("a pair such as {}", example), text);
  return {text.substr(0, at), text.substr(at + 1)};
}

double factor_of(std::string_view text, const char* flag, const char* expected = "a finite factor behind =") {
  const auto value = number_in<double>(text);
  if (!value || !std::isfinite(static_cast<float>(*value))) refuse(flag, expected, text);
  return *value;
}

void add_weights(Edits& edits, const std::string& text, const LanguageModelConfig& c,
                 std::set<std::pair<std::int64_t, std::int64_t>>& given) {
  const auto [place, name] = sides(text, "--weights", "1.2=uniform");
  const Place at = place_of(place, "--weights", c, true);
  if (!given.emplace(at.layer, *at.head).second) refuse("--weights", "every head once", formatted("{} twice", place));
  const auto weights = name == "uniform"    ? Weights::uniform
                       : name == "previous" ? Weights::previous
                       : name == "none"
                           ? Weights::none
                           : (refuse("--weights", "uniform, previous or none behind =", name), Weights::none);
  edits.push_back(reweigh({at.layer, *at.head}, weights));
}

void add_skips(Edits& edits, const std::string& text, const LanguageModelConfig& c) {
  for (const std::string& part : split(text, ',')) {
    const bool attention = part.ends_with(":attention"), mlp = part.ends_with(":mlp");
    const std::string_view layer = std::string_view(part).substr(0, part.find(':'));
    if (part.find(':') != std::string::npos && !attention && !mlp) {
      refuse("--skip", "a layer, or one with :attention or :mlp behind it", part);
    }
    const Place at = place_of(layer, "--skip", c, false);
    if (at.head) refuse("--skip", "layers, without heads", part);
    edits.push_back(attention ? skip_attention(at.layer) : mlp ? skip_feed_forward(at.layer) : skip_layer(at.layer));
  }
}

// "3": no head sees token 3; "1.2=3", "1=3": not head 2 of layer 1, or no head of that layer.
void add_hidden(Edits& edits, const std::string& text, const LanguageModelConfig& c, std::int64_t tokens) {
  const std::size_t at = text.rfind('=');
  const bool has_place = at != std::string::npos;
  const auto token = number_in<std::int64_t>(std::string_view(text).substr(has_place ? at + 1 : 0));
  if (!token || *token < 1 || *token > tokens) {
    refuse("--hide", formatted("a token from 1 to {}, as 2, or behind a head or a layer, as 1.2=2", tokens), text);
  }
  if (!has_place) {
    std::ranges::move(hide(*token - 1, c), std::back_inserter(edits));
    return;
  }
  const Place from = place_of(std::string_view(text).substr(0, at), "--hide", c, false);
  edits.push_back(from.head ? hide(HeadAt{from.layer, *from.head}, *token - 1, c) : hide(from.layer, *token - 1, c));
}

// "h.0.attn.context=0.5", "h.0.attn.weights:2=w.npy", of its head 2
Edit step_changed(const std::string& text, const LanguageModelConfig& c, std::vector<std::string>& notes) {
  const auto [step, value] = sides(text, "--step", "h.0.attn.context=0.5");
  const std::string_view name = step.substr(0, step.find(':'));
  std::optional<std::int64_t> head;
  if (name.size() < step.size()) {
    const auto number = number_in<std::int64_t>(step.substr(name.size() + 1));
    const std::int64_t heads = c.most_heads();
    if (!number || *number < 1 || *number > heads) {
      refuse("--step", formatted("a head from 1 to {} behind the name's colon", heads), step);
    }
    head = *number - 1;
  }
  if (!value.ends_with(".npy"))
    return scale_step(std::string(name), factor_of(value, "--step", "a finite factor or an .npy file behind ="), head);
  return replace_step(std::string(name), load_float32(std::string(value), {}, 0, notes, {}).tensor, head);
}

Edit switched_off(const Place& at, By by, const Contexts& contexts) {
  if (contexts.empty()) return at.head ? without({at.layer, *at.head}, by) : without_heads_of(at.layer, by);
  const Tensor& layer = contexts[static_cast<std::size_t>(at.layer)];
  if (at.head) return without({at.layer, *at.head}, layer.select(0, *at.head));
  return without_heads_of(at.layer, layer);
}

}  // namespace

By by_named(const std::string& name) { return name == "zero" ? By::zero : name == "mean" ? By::mean : By::uniform; }

void add_edit_flags(Verb& verb, EditFlags& flags) {
  verb.group("What is changed");
  const auto& without =
      verb.add_option("--without LAYER.HEAD,…", flags.without, "Switch off these heads, or all heads of a layer.");
  verb.add_option("--keep-only LAYER.HEAD,…", flags.keep_only, "Switch off all heads but these.").not_beside(without);
  verb.add_option("--by NAME", flags.by,
                  "What a head gives that is switched off:\n"
                  "zero     nothing\n"
                  "mean     its mean over the text, or over --mean-of\n"
                  "uniform  what it gives when it looks everywhere alike\n"
                  "text     what it gives in the text of --from")
      .one_of({"zero", "mean", "uniform", "text"});
  const Option& mean_of =
      verb.add_option("--mean-of TEXT…", flags.mean_of, "The mean is over these texts, with --by mean.");
  verb.add_option("--mean-of-file FILE…", flags.mean_of_files, "The same, each text from a file.").not_beside(mean_of);
  verb.add_option("--from TEXT", flags.from, "The text of --by text, which has as many tokens.");
  verb.add_option("--scale LAYER.HEAD=FACTOR…", flags.scales, "Multiply what a head gives.");
  verb.add_option("--weights LAYER.HEAD=NAME…", flags.weights,
                  "A head's weights: uniform, previous (the token before), or none.");
  verb.add_option(
      "--hide TOKEN…", flags.hidden,
      "Hide this token, counted from 1, from all heads. LAYER.HEAD=TOKEN hides it from one head, and LAYER=TOKEN "
      "from all heads of a layer.");
  verb.add_option("--skip LAYER,…", flags.skip,
                  "Skip these layers, or their attention (3:attention) or feed-forward (3:mlp).");
  verb.add_option("--step NAME=X…", flags.steps,
                  "Multiply a step, by its name in a trace, h.0.attn.context=0.5, or one head of it, "
                  "h.0.attn.weights:2=0.5. Or put an array in its place: h.0.attn.context=z.npy.");
}

Edits edits_of(const EditFlags& flags, const LanguageModelConfig& c, std::int64_t tokens, const Contexts& contexts,
               std::vector<std::string>& notes) {
  Edits edits;
  const By by = by_named(flags.by);
  if (flags.without) {
    for (const std::string& part : split(*flags.without, ',')) {
      edits.push_back(switched_off(place_of(part, "--without", c, false), by, contexts));
    }
  }
  if (flags.keep_only) {
    std::vector<HeadAt> kept;
    for (const std::string& part : split(*flags.keep_only, ',')) {
      const Place at = place_of(part, "--keep-only", c, true);
      kept.push_back({at.layer, *at.head});
    }
    edits = contexts.empty() ? keep_only(kept, c, by) : keep_only(kept, c, contexts);
  }
  for (const std::string& text : flags.scales) {
    const auto [place, factor] = sides(text, "--scale", "1.2=0.5");
    const Place at = place_of(place, "--scale", c, true);
    edits.push_back(scale({at.layer, *at.head}, factor_of(factor, "--scale")));
  }
  std::set<std::pair<std::int64_t, std::int64_t>> reweighed;
  for (const std::string& text : flags.weights) add_weights(edits, text, c, reweighed);
  for (const std::string& text : flags.hidden) add_hidden(edits, text, c, tokens);
  if (flags.skip) add_skips(edits, *flags.skip, c);
  for (const std::string& text : flags.steps) edits.push_back(step_changed(text, c, notes));
  return edits;
}

}  // namespace attn::tool
