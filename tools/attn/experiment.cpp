// attn experiment: edits of a model's forward pass on a text, and what follows from them.
#include "experiment/experiment.hpp"

#include <unistd.h>

#include <array>
#include <filesystem>

#include "attn/error.hpp"
#include "common/choice.hpp"
#include "common/figure_file.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "experiment/measures.hpp"
#include "experiment/tell.hpp"
#include "io/file.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

struct ExperimentFlags {
  std::string model, text, text_file, tokenizer, other_model, other_text, patch_from;
  std::string colours = "viridis";
  FigureFile file;
  EditFlags edits;
  std::vector<std::string> tokens;
  std::int64_t count = 10, exact = -1;  // -1: all
  bool next = false, effects = false, changes = false, lens = false, attribution = false, rollout = false,
       scores = false, checkpoints = false, heads = false, json = false;
};

constexpr const char* kExperimentNotes =
    "Without one of --next, --effects, … the loss of each token is printed, as the model is and as it is changed. "
    "Layers and heads count from 1, as everywhere in this command: 3.1 is head 1 of layer 3. MODEL is what attn "
    "generate takes; its matrices are read as float32. --rollout and --changes take encoders, too.\n\n"
    "--effects switches off every head in turn, by --by, in passes that begin at its layer. In a model of many layers "
    "this takes long: 140 passes for 270 heads. With --exact N the gradient of one pass estimates each effect "
    "(attribution patching), and only the N heads of the largest estimates are switched off: --exact 8 takes fewer "
    "than 12 passes. The table tells which rows are estimates. They are right for small changes, and may miss a "
    "head.\n\n"
    "--patch-from T2 puts parts of the text into a pass on T2, which has as many tokens, and tells how much of the "
    "logit difference of the two --tokens comes back. Changes act in both texts. With --other-model or --other-text "
    "the two are compared, both with the same changes. Of two texts alone the losses of all tokens are told. Of two "
    "models alone losses, next tokens and heads are told together, and the figure shows what the other adds to each "
    "token's loss. Heads of two models are compared with --changes, --scores or --effects, and heads in two texts with "
    "--scores, --effects or --attribution.\n\n"
    "A figure goes to the terminal, or with --output to an SVG or PNG file, or to a page that has the tables, too. "
    "docs/experiments.md explains each of these.\n\n"
    "The exit code is 0 when all is done, 2 for wrong usage, and 3 for bad data or files.";

constexpr const char* kExperimentExamples =
    "attn experiment --model gpt2/ --text 'A word looks at others.'\n"
    "attn experiment --model gpt2/ --text 'A word' --without 1.2,2 --next\n"
    "attn experiment --model gpt2/ --text 'A word' --effects --output effects.svg\n"
    "attn experiment --model gpt2/ --text 'A word' --effects --exact 8 --json\n"
    "attn experiment --model gpt2/ --text 'A word' --rollout --output rollout.html\n"
    "attn experiment --model gpt2/ --text 'A word' --lens\n"
    "attn experiment --model gpt2/ --text word --patch-from wood --tokens s d\n"
    "attn experiment --model gpt2/ --text 'A word' --scores --json\n"
    "attn experiment --model gpt2/ --other-model model.safetensors --text 'A word'\n"
    "attn experiment --model model.safetensors --text 'A word' --checkpoints";

// Returns the flag that says what is asked for; none stands for the loss of each token.
std::string asked(const Verb& verb) {
  std::string found;
  for (const char* flag : {"--next", "--effects", "--changes", "--lens", "--patch-from", "--attribution", "--rollout",
                           "--scores", "--checkpoints"}) {
    if (!verb.given(flag)) continue;
    if (!found.empty()) refuse(flag, "one of these at a time", found + " beside it");
    found = flag;
  }
  return found;
}

void require_used(const Verb& verb, const std::string& what) {
  const auto only_with = [&](const char* flag, std::initializer_list<std::string_view> uses) {
    if (!verb.given(flag) || std::ranges::find(uses, what) != uses.end()) return;
    std::vector<std::string> names;
    for (const std::string_view use : uses) names.emplace_back(use.empty() ? "nothing" : use);
    refuse(flag, joined(names, " or ") + " beside it", what.empty() ? "none of them" : what);
  };
  only_with("--count", {"--next"});
  only_with("--heads", {"--patch-from"});
  only_with("--exact", {"--effects"});
  only_with("--tokens", {"--next", "--patch-from", "--attribution", "--effects"});
  only_with("--other-model", {"", "--next", "--effects", "--changes", "--scores"});
  for (const char* flag : {"--mean-of", "--mean-of-file", "--from"}) {
    if (verb.given(flag) && verb.given("--other-model")) {
      refuse(flag, "one model, whose heads give this", "--other-model beside it");
    }
  }
  if (verb.given("--count") && verb.given("--tokens")) refuse("--count", "it without --tokens", "both");
  if (what == "--checkpoints" && verb.given("--colours")) {
    refuse("--colours", "it only with figures of cells", what);
  }
  only_with("--other-text", {"", "--next", "--effects", "--scores", "--attribution"});
  if (verb.given("--by") && !verb.given("--without") && !verb.given("--keep-only") && what != "--effects") {
    refuse("--by", "--without, --keep-only or --effects beside it", "none");
  }
}

void require_one_stream(const ExperimentFlags& flags) {
  const auto streams = std::ranges::count(flags.edits.mean_of_files, "-") + (flags.text_file == "-" ? 1 : 0);
  if (streams > 1) refuse("--mean-of-file", "standard input (-) once", "it twice");
}

Tensor ids_of_text(const TextModel& model, const Tokenizer& tokenizer, const std::string& text, const char* flag) {
  const std::vector<std::int64_t> ids = tokenizer.encode(text);
  const std::int64_t most = model.context_length();
  if (ids.empty() || std::ssize(ids) > most) {
    refuse(flag, formatted("1 to {} tokens, as the model takes", most), formatted("{}", ids.size()));
  }
  return Tensor::from(std::span<const std::int64_t>(ids), {std::ssize(ids)});
}

Reading reading_of(std::shared_ptr<TextModel> model, std::shared_ptr<Tokenizer> tokenizer, const std::string& text,
                   const char* flag) {
  Reading reading{.model = std::move(model), .tokenizer = std::move(tokenizer), .ids = {}, .tokens = {}, .flag = flag};
  reading.ids = ids_of_text(*reading.model, *reading.tokenizer, text, flag);
  for (std::int64_t i = 0; i < reading.ids.numel(); ++i) {
    reading.tokens.push_back(reading.tokenizer->decode(reading.ids.data<std::int64_t>()[i]));
  }
  return reading;
}

Reading reading_of(const std::string& path, const std::string& tokenizer, const std::string& text, const char* flag) {
  std::shared_ptr<TextModel> model = load_reader(path);
  std::shared_ptr<Tokenizer> its = model->tokenizer(tokenizer);
  return reading_of(std::move(model), std::move(its), text, flag);
}

// Two models are compared token by token, so that both must read the same ones.
void require_same_tokens(const Reading& one, const Reading& other) {
  const auto wrong = [](const std::string& expected, const std::string& found) {
    throw Error(Error::Kind::data, "--other-model", expected, found);
  };
  const auto sizes = [](const Reading& r) {
    return formatted("a vocabulary of {}, and {} in the tokenizer", r.model->vocab_size(), r.tokenizer->vocab_size());
  };
  if (!other.model->writes()) wrong("a language model", "an encoder");
  if (sizes(one) != sizes(other)) wrong(sizes(one), sizes(other));
  for (std::int64_t id = 0; id < one.tokenizer->vocab_size(); ++id) {
    const std::string a = one.tokenizer->decode(id), b = other.tokenizer->decode(id);
    if (a != b) wrong(formatted("the same tokens, whose {} is '{}'", id, escaped(a)), "'" + escaped(b) + "'");
  }
  if (one.tokens == other.tokens) return;
  const auto [a, b] = std::ranges::mismatch(one.tokens, other.tokens);
  const auto name = [](const auto& at, const auto& all) {
    return at == all.end() ? "its end" : "'" + escaped(*at) + "'";
  };
  wrong(formatted("the text cut as --model does, with {} as token {}", name(a, one.tokens), a - one.tokens.begin() + 1),
        name(b, other.tokens));
}

// A comparison of heads, and not of losses alone, needs as many of them in both models.
void require_same_heads(const std::string& what, const Reading& one, const Reading& other) {
  if (what.empty() || what == "--next" || !one.model->writes()) return;
  const auto sizes = [](const Reading& r) { return experiment::heads_in_words(r.lm().config()); };
  if (sizes(one) != sizes(other)) {
    refuse(what, "two models of " + sizes(one), sizes(other), "without it losses are told");
  }
}

// --tokens: one or two texts that are one token each.
std::vector<std::int64_t> ids_of(const Reading& reading, const std::vector<std::string>& texts, std::size_t least) {
  if (texts.size() > 2 || texts.size() < least) {
    refuse("--tokens", least == 2 ? "two tokens" : "one or two tokens", formatted("{}", texts.size()),
           "such as --tokens ' Paris' ' Rome'");
  }
  std::vector<std::int64_t> ids;
  for (const std::string& text : texts) {
    const auto found = reading.tokenizer->encode(text, {.add_special_tokens = false});
    if (found.size() != 1) {
      refuse("--tokens", "texts that are one token each", formatted("{} tokens for '{}'", found.size(), text),
             "most words begin with their blank: ' Paris'");
    }
    ids.push_back(found.front());
  }
  if (ids.size() == 2 && ids[0] == ids[1]) refuse("--tokens", "two tokens that differ", "one of them twice");
  return ids;
}

std::int64_t likeliest(const Reading& reading, const Edits& edits) {
  const Tensor logits = reading.lm().forward(reading.ids, {.edits = edits});
  return candidates(logits.select(0, logits.size(0) - 1), {.temperature = 0}).front().id;
}

// Returns what each head gives on average in the texts of --mean-of, or in that of --from; empty where there are none.
Contexts contexts_of(const Reading& one, const Verb& verb, const EditFlags& flags) {
  if (flags.by == "text" && !verb.given("--from")) refuse("--by", "--from beside text", "none");
  for (const char* flag : {"--mean-of", "--mean-of-file", "--from"}) {
    const char* by = flag == std::string_view("--from") ? "text" : "mean";
    if (verb.given(flag) && flags.by != by) refuse(flag, formatted("--by {} beside it", by), "--by " + flags.by);
  }
  std::vector<std::string> texts = flags.mean_of;
  for (const std::string& path : flags.mean_of_files) {
    texts.emplace_back(io::as_text(io::read_file(path, "--mean-of-file").bytes()));
  }
  const auto of = [&](auto& model) -> Contexts {
    if (flags.by == "text") {
      const Tensor ids = ids_of_text(*one.model, *one.tokenizer, flags.from, "--from");
      const std::int64_t count = one.ids.numel();
      if (ids.numel() != count) refuse("--from", formatted("a text of {} tokens", count), formatted("{}", ids.numel()));
      return text_contexts(model, ids);
    }
    std::vector<Tensor> all;
    const char* const flag = flags.mean_of.empty() ? "--mean-of-file" : "--mean-of";
    for (const std::string& text : texts) all.push_back(ids_of_text(*one.model, *one.tokenizer, text, flag));
    return all.empty() ? Contexts{} : mean_contexts(model, all);
  };
  return one.model->writes() ? of(one.lm()) : of(*one.model->encoder());
}

Found found_by(const std::string& what, const Reading& one, const Reading* other, const Edits& edits,
               const Contexts& others, const ExperimentFlags& flags) {
  if (!one.model->writes() && (other || (what != "--rollout" && what != "--changes"))) {
    refuse("--model", "a language model; an encoder only with --rollout or --changes", "an encoder");
  }
  if (what == "--rollout") return rolled_out(one, edits);
  if (what == "--next") {
    const auto tokens = flags.tokens.empty() ? std::vector<std::int64_t>{} : ids_of(one, flags.tokens, 1);
    return next_tokens(one, edits, other, flags.count, tokens);
  }
  if (what == "--lens") return lens(one, edits);
  if (what == "--scores") return scored(one, edits, other);
  if (what == "--checkpoints") return over_checkpoints(one, edits, flags.model);
  if (what == "--changes") {
    if (edits.empty() && !other) {
      refuse(what, "something that is changed, as --without 1.2, or --other-model", "none");
    }
    return changes(one, edits, other);
  }
  if (what == "--effects") {
    EffectOptions options{.by = by_named(flags.edits.by), .edits = edits, .contexts = others};
    if (flags.exact >= 0) options.exact = flags.exact;
    std::int64_t heads = 0;
    for (std::int64_t l = 0; l < std::ssize(one.model->config().layers); ++l) heads += one.model->config().heads_of(l);
    if (!edits.empty() && options.exact && *options.exact < heads) {
      refuse("--exact", formatted("all {} heads beside a change, since none can be estimated then", heads),
             std::to_string(flags.exact), "leave it out");
    }
    if (!flags.tokens.empty()) {
      const auto pair = ids_of(one, flags.tokens, 2);
      options.tokens = TokenPair{pair[0], pair[1]};
    }
    return effects(one, options, other);
  }
  if (what == "--attribution") {
    if (flags.tokens.empty()) return attributed(one, edits, likeliest(one, edits), {}, other);
    const auto ids = ids_of(one, flags.tokens, 1);
    return attributed(one, edits, ids[0], ids.size() > 1 ? std::optional(ids[1]) : std::nullopt, other);
  }
  if (what == "--patch-from") {
    const auto pair = ids_of(one, flags.tokens, 2);
    return patched(one, edits, *other, {pair[0], pair[1]}, flags.heads);
  }
  if (!other) return losses(one, edits, nullptr);
  return one.model == other->model ? losses_of_both(one, edits, *other) : side_by_side(one, edits, *other);
}

// The changes act in the pass of the other text, or of the other model, as well.
void require_there_too(const char* flag, const Reading& one, const Reading& other, const EditFlags& flags,
                       const Contexts& contexts) {
  const std::int64_t count = one.ids.numel(), others = other.ids.numel();
  if (flags.by == "text" && count != others) {
    refuse("--by", formatted("texts of as many tokens beside {}", flag), formatted("{} and {}", count, others),
           "text gives each token what a head gives there in the text of --from");
  }
  std::vector<std::string> told_before;
  try {
    edits_of(flags, other.model->config(), others, contexts, told_before);
  } catch (const Error& error) {
    throw Error(error.kind(), flag, "what is changed to be there as well",
                std::string("that it is not: ") + error.what());
  }
}

// Who compares something with itself by mistake sees differences of 0 and nothing else.
void note_the_same(const Verb& verb, const ExperimentFlags& flags, std::vector<std::string>& notes) {
  std::error_code none;
  if (verb.given("--other-model") && std::filesystem::equivalent(flags.model, flags.other_model, none)) {
    notes.emplace_back("--other-model is the model itself: nothing differs");
  }
  if (verb.given("--other-text") && flags.text_file.empty() && flags.text == flags.other_text) {
    notes.emplace_back("--other-text is the text itself: nothing differs");
  }
}

// Sentences in lines of 80 columns; tables are narrower.
std::string in_columns(const std::string& line) {
  return width_of(line) > kColumns ? wrapped(split(line, ' '), kColumns) : line;
}

std::string in_lines(const Found& found) {
  std::string text;
  for (const std::string& line : found.lines) text += in_columns(line) + "\n";
  return text;
}

void show(const Found& found) {
  std::string text = in_columns(found.title) + "\n\n";
  if (found.picture.defined()) {
    const Style style = Style::of_stdout();
    text += picture_in_text(found, {.columns = text_columns(), .depth = style.depth()});
    if (!text.ends_with('\n')) text += "\n";
    if (!found.lines.empty()) text += "\n";
  }
  write_stdout(fitted(text + in_lines(found), STDOUT_FILENO));
}

void experiment(const Verb& verb, const ExperimentFlags& flags) {
  const std::string what = asked(verb);
  require_used(verb, what);
  Outputs outputs;
  declare_figure(verb, flags.file, outputs);
  if (flags.json && outputs.to_stdout()) {
    refuse("--output", "a file beside --json, which goes to standard output", flags.file.path);
  }
  require_one_stream(flags);
  if (!verb.given("--text") && !verb.given("--text-file")) refuse("--text", "a text that the model reads", "none");
  const char* const text_flag = flags.text_file.empty() ? "--text" : "--text-file";
  const std::string text = flags.text_file.empty()
                               ? flags.text
                               : std::string(io::as_text(io::read_file(flags.text_file, "--text-file").bytes()));
  const Reading one = reading_of(flags.model, flags.tokenizer, text, text_flag);
  std::optional<Reading> other;
  if (what == "--patch-from") {
    other = reading_of(one.model, one.tokenizer, flags.patch_from, "--patch-from");
    const std::int64_t count = one.ids.numel(), others = other->ids.numel();
    if (count != others) refuse("--patch-from", formatted("a text of {} tokens", count), formatted("{}", others));
  }
  const bool of_text = verb.given("--other-text");
  if (of_text) other = reading_of(one.model, one.tokenizer, flags.other_text, "--other-text");
  if (verb.given("--other-model")) {
    require_model("--other-model", flags.other_model);
    other = reading_of(flags.other_model, flags.tokenizer, text, "--other-model");
    other->flag = text_flag;
    require_same_tokens(one, *other);
    require_same_heads(what, one, *other);
  }
  const LanguageModelConfig& config = one.model->config();
  const Contexts others = contexts_of(one, verb, flags.edits);
  std::vector<std::string> notes;
  const Edits edits = edits_of(flags.edits, config, one.ids.numel(), others, notes);
  // These tell of weights and contexts themselves, which a change alters though nothing comes out of it.
  constexpr std::array inside{"--rollout", "--changes", "--scores", "--checkpoints"};
  if (std::ranges::find(inside, what) == inside.end()) refuse_overwritten(edits, config);
  note_the_same(verb, flags, notes);
  tell_beside(notes);
  if (of_text) require_there_too("--other-text", one, *other, flags.edits, others);
  if (verb.given("--other-model")) require_there_too("--other-model", one, *other, flags.edits, others);
  if (what == "--patch-from") require_there_too("--patch-from", one, *other, flags.edits, others);
  const Found found = found_by(what, one, other ? &*other : nullptr, edits, others, flags);
  const auto print = [&] {
    if (flags.json) return write_stdout(dump(found.json));
    if (!outputs.to_stdout()) show(found);
  };
  if (flags.file.path.empty()) return print();
  figure::Options options = found.figure;
  options.title = found.title, options.colours = colours_named(flags.colours);
  const std::string picture =
      found.series.empty() ? figure::heatmap(found.picture, options) : figure::line_chart(found.series, found.axes);
  const bool has_table = !found.lines.empty() || !found.picture.defined();
  save_figure(flags.file, outputs, picture, has_table ? in_lines(found) : picture_in_text(found, {.columns = 120}),
              print);
}

}  // namespace

void define_experiment(Verb& verb, int&) {
  const auto flags = std::make_shared<ExperimentFlags>();
  verb.add_option("--model MODEL", flags->model, "The model.").required();
  const Option& text = verb.add_option("--text TEXT", flags->text, "The text that it reads.");
  verb.add_option("--text-file FILE", flags->text_file, "The same from a file; - is standard input.").not_beside(text);
  verb.add_option("--tokenizer FOLDER", flags->tokenizer, "A folder with a tokenizer.json.")
      .default_is("the model's own, or bytes");
  add_edit_flags(verb, flags->edits);
  verb.group("What is told");
  verb.add_flag("--next", flags->next, "The likeliest next tokens, before and after.");
  verb.add_option("--count N", flags->count, "How many.").at_least(1);
  verb.add_flag("--changes", flags->changes, "How much each head gives otherwise.");
  verb.add_flag("--effects", flags->effects, "What the loss becomes when each head is switched off.");
  const Option& exact =
      verb.add_option("--exact N", flags->exact, "Switch off so many heads with --effects, and estimate the others.")
          .default_is("all")
          .at_least(0);
  verb.add_flag("--lens", flags->lens, "The logit lens: what each layer would say.");
  verb.add_flag("--attribution", flags->attribution, "What each head adds to a token's logit, before a softcap.");
  verb.add_flag("--rollout", flags->rollout, "Attention rollout.");
  verb.add_flag("--scores", flags->scores, "TransformerLens's scores: previous token, duplicate token, induction.");
  verb.add_flag("--checkpoints", flags->checkpoints,
                "The loss, and the strongest head of each score, in every model that attn train --keep-every has kept "
                "beside MODEL.");
  verb.add_option("--patch-from TEXT", flags->patch_from, "Patch parts of the text into a pass on this one.");
  verb.add_flag("--heads", flags->heads, "Draw heads, not layers and tokens, with --patch-from.");
  verb.add_option("--tokens TOKEN…", flags->tokens, "The tokens whose chances or logits are told, one or two of them.");
  const Option& other =
      verb.add_option("--other-model MODEL", flags->other_model, "Compare with this model.").not_beside(exact);
  verb.add_option("--other-text TEXT", flags->other_text,
                  "Compare with this text: losses, or with --next, --effects, --scores or --attribution.")
      .not_beside(exact)
      .not_beside(other);
  verb.group("Options");
  verb.add_flag("--json", flags->json, "Print one JSON object, with all numbers.");
  const Option& output = add_figure_flags(verb, flags->file);
  verb.add_option("--colours,--colors NAME", flags->colours,
                  "The figure's colours: viridis, cividis or grey. Differences go from violet to "
                  "orange with the first two.")
      .one_of({"viridis", "cividis", "grey"})
      .needs(output);
  verb.notes(kExperimentNotes);
  verb.examples(kExperimentExamples);
  verb.callback([&verb, flags] { experiment(verb, *flags); });
}

}  // namespace attn::tool
