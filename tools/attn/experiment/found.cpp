#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "common/terminal.hpp"
#include "experiment/tell.hpp"

namespace attn::tool {
namespace {

using Int = std::int64_t;

// Shows each head's `after` where it is known, and else its estimate.
void tell_effects(Found& found, const Reading& one, const Effects& effects, const char* measure) {
  Tensor known = effects.after.clone();
  Int exact = 0;
  double furthest = 0;
  for (Int l = 0; l < known.size(0); ++l) {
    for (Int h = 0; h < known.size(1); ++h) {
      const double estimate = effects.estimates.at({l, h});
      if (std::isnan(known.at({l, h}))) {
        known.set({l, h}, estimate);
      } else {
        ++exact, furthest = std::max(furthest, std::abs(estimate - known.at({l, h})));
      }
    }
  }
  found.title = formatted("Effects of switched-off heads on the {}; {} of {} are estimates", measure,
                          known.numel() - exact, known.numel());
  const Tensor shown = difference(known, effects.before);
  draw_differences(found, shown, measure);
  tell_largest(found, one, shown, measure, 8, [&](Int l, Int h) {
    return std::string(std::isnan(effects.after.at({l, h})) ? "estimate" : "exact");
  });
  found.lines.emplace_back();
  found.lines.push_back(formatted("With all heads the {} is {:.4f}.", measure, effects.before));
  if (exact > 0) {
    found.lines.push_back(formatted("Estimates of the exact ones are off by {:.4f} on average, and {:.4f} at most.",
                                    effects.error, furthest));
  }
  found.lines.emplace_back("Without --exact every head is switched off.");
  found.json["estimates"] = json_values(effects.estimates);
  found.json["estimate_error"] = exact > 0 ? json_number(effects.error) : Json();  // nothing was compared
}

// The passes through the whole model to which those of every head, each from its layer on, add up.
double passes_for_all_heads(const LanguageModelConfig& c) {
  const auto layers = std::ssize(c.layers);
  double passes = 1;
  for (Int l = 0; l < layers; ++l) {
    passes += static_cast<double>(c.heads_of(l)) * static_cast<double>(layers - l) / static_cast<double>(layers);
  }
  return passes;
}

// Who waits for many passes may not know that few give a first answer.
void tell_of_estimates(const LanguageModelConfig& c, const EffectOptions& options) {
  constexpr double kMany = 20;
  const double passes = passes_for_all_heads(c);
  const bool softmax = std::ranges::all_of(c.layers, [](const auto& layer) { return layer.mixer == Mixer::softmax; });
  const bool estimable = softmax && !c.latent && options.edits.empty();
  if (options.exact || !estimable || passes < kMany) return;
  write_stderr(fitted(formatted("attn experiment: all heads take about {:.0f} passes; --exact 8 takes fewer than 12, "
                                "and estimates the others\n",
                                passes),
                      STDERR_FILENO));
}

std::string pair_text(const Reading& one, Int a, std::optional<Int> b) {
  return one.token(a) + (b ? " less that of " + one.token(*b) : "");
}

// How much more each head adds in the other text.
Found attributed_in_both(const Reading& one, const Edits& edits, Int a, std::optional<Int> b, const Reading& other) {
  const auto of = [&](const Reading& text) { return attribution(text.lm(), text.ids, a, b, {}, edits); };
  const Attribution here = of(one), there = of(other);
  Found found =
      titled(formatted("What each head adds to the logit of {} in the other text, less that here, at the last "
                       "token: {} here, {} there",
                       pair_text(one, a, b), signed_text(here.logit), signed_text(there.logit)),
             one);
  found.json["token_id"] = a, found.json["less_id"] = b ? Json(*b) : Json();
  found.json["heads"] = json_values(here.heads), found.json["heads_other"] = json_values(there.heads);
  found.json["logit"] = json_number(here.logit), found.json["logit_other"] = json_number(there.logit);
  const Tensor shown = difference(there.heads, here.heads);
  draw_differences(found, shown, "logit");
  tell_largest(found, one, shown, "logit");
  return found;
}

}  // namespace

Found effects(const Reading& one, const EffectOptions& options, const Reading* other) {
  if (!other) tell_of_estimates(one.lm().config(), options);
  const Effects first = head_effects(one.lm(), one.ids, options);
  const char* measure = options.tokens ? "logit difference" : "loss";
  Found found = titled(formatted("What switching off a head adds to the {}, {} {}", measure, fixed(first.before, 4),
                                 options.edits.empty() ? "with all heads" : "as it is changed"),
                       one);
  found.json["before"] = json_number(first.before), found.json["after"] = json_values(first.after);
  if (first.estimates.defined()) {
    tell_effects(found, one, first, measure);
    return found;
  }
  Tensor shown = difference(first.after, first.before);
  if (other) {
    const Effects second = head_effects(other->lm(), other->ids, options);
    shown = difference(difference(second.after, second.before), shown);
    found.title = formatted("What switching off a head adds to the {} in the other, less that here", measure);
    found.json["before_other"] = json_number(second.before), found.json["after_other"] = json_values(second.after);
  }
  draw_differences(found, shown, measure);
  tell_largest(found, one, shown, measure);
  return found;
}

Found lens(const Reading& one, const Edits& edits) {
  const Lens read = logit_lens(one.lm(), one.ids, edits);
  Found found = titled("The logit lens: what the last norm and the head read in each layer", one);
  const Int layers = read.tokens.size(0), t = read.tokens.size(1);
  std::vector<std::string> rows;
  Table table{{"into layer", "likeliest next token", "chance", "loss of the text"}};
  for (Int l = 0; l < layers; ++l) {
    rows.push_back(l + 1 < layers ? std::to_string(l + 1) : "out");
    const Int id = read.tokens.data<Int>()[l * t + t - 1];
    table.push_back({rows.back(), one.token(id), formatted("{:.4f}", read.probability.at({l, t - 1})),
                     t > 1 ? formatted("{:.4f}", mean_of(read.losses.select(0, l))) : ""});
  }
  tell(found, table, "<<>>");
  found.json["likeliest"] = json_values(read.tokens), found.json["chance"] = json_values(read.probability);
  if (t > 1) found.json["losses"] = json_values(read.losses);
  draw_matrix(found, read.probability, "layers", "tokens", "chance", rows, one.tokens);
  return found;
}

Found patched(const Reading& clean, const Edits& edits, const Reading& corrupt, TokenPair tokens, bool heads) {
  const Patching p = patching(clean.lm(), clean.ids, corrupt.ids, tokens, edits);
  Found found = titled(formatted("{} less {}, their logits: {} in the text, {} in the other", clean.token(tokens.a),
                                 clean.token(tokens.b), signed_text(p.clean), signed_text(p.corrupt)),
                       clean);
  found.lines = {"1: this part of the text, patched into the other, gives back the difference.",
                 "0: it gives back none of it.", ""};
  found.json["other_tokens"] = corrupt.tokens;
  found.json["clean"] = json_number(p.clean), found.json["corrupt"] = json_number(p.corrupt);
  found.json["stream"] = json_values(p.stream), found.json["heads"] = json_values(p.heads);
  if (heads) {
    draw_heads(found, p.heads, "share");
  } else {
    draw_matrix(found, p.stream, "layers", "tokens", "share", numbers(p.stream.size(0)), clean.tokens);
  }
  tell_largest(found, clean, p.heads, "share");
  return found;
}

Found attributed(const Reading& one, const Edits& edits, Int a, std::optional<Int> b, const Reading* other) {
  if (other) return attributed_in_both(one, edits, a, b, *other);
  const Attribution parts = attribution(one.lm(), one.ids, a, b, {}, edits);
  Found found = titled("What each part adds to the logit of " + pair_text(one, a, b) + ", at the last token", one);
  double heads = 0, biases = 0, feed_forwards = 0;
  for (Int l = 0; l < parts.heads.size(0); ++l) {
    for (Int h = 0; h < one.lm().config().heads_of(l); ++h) heads += parts.heads.at({l, h});
    biases += parts.biases.at({l}), feed_forwards += parts.feed_forwards.at({l});
  }
  Table table{{"all heads", signed_text(heads)},
              {"all feed-forwards", signed_text(feed_forwards)},
              {"biases", signed_text(biases + parts.bias)},
              {"embedding", signed_text(parts.embedding)},
              {"sum", signed_text(parts.sum)},
              {"the model's logit", signed_text(parts.logit)}};
  tell(found, table, "<>");
  found.lines.emplace_back();
  found.json["token"] = text_in_json(one, a), found.json["less"] = b ? text_in_json(one, *b) : Json();
  found.json["token_id"] = a, found.json["less_id"] = b ? Json(*b) : Json(), found.json["position"] = one.ids.numel();
  found.json["heads"] = json_values(parts.heads), found.json["biases"] = json_values(parts.biases);
  found.json["feed_forwards"] = json_values(parts.feed_forwards);
  found.json["embedding"] = json_number(parts.embedding), found.json["bias"] = json_number(parts.bias);
  found.json["sum"] = json_number(parts.sum), found.json["logit"] = json_number(parts.logit);
  draw_differences(found, parts.heads, "logit");
  tell_largest(found, one, parts.heads, "logit");
  return found;
}

Found rolled_out(const Reading& one, const Edits& edits) {
  const Tensor all =
      one.model->writes() ? rollout(one.lm(), one.ids, edits) : rollout(*one.model->encoder(), one.ids, edits);
  Found found = titled("Attention rollout: where each token of the last layer comes from", one);
  found.json["rollout"] = json_values(all);
  draw_matrix(found, all.select(0, all.size(0) - 1).contiguous(), "queries", "keys", "share", one.tokens, one.tokens);
  found.figure.scale = figure::Scale::automatic;
  return found;
}

}  // namespace attn::tool
