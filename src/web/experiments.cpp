// Experiments in a page: those of `attn experiment`, by the same functions.
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "attn/error.hpp"
#include "experiment/passes.hpp"
#include "report/html/json.hpp"
#include "web/door.hpp"
#include "web/page.hpp"

namespace attn::web {
namespace {

using report_page::Json;

Tensor text_of(const std::int32_t* ids, std::size_t count) {
  const std::vector<std::int64_t> wide(ids, ids + count);
  return Tensor::from(std::span<const std::int64_t>(wide), {std::ssize(wide)});
}

// (rows, columns) as a list of lists.
void write(Json& json, const char* name, const Tensor& values) {
  json.name(name).array();
  for (std::int64_t i = 0; i < values.size(0); ++i) {
    json.array();
    for (std::int64_t j = 0; j < values.size(1); ++j) json.number(values.at({i, j}));
    json.end();
  }
  json.end();
}

std::string token(std::int64_t id) {
  const std::vector<std::int64_t> one{id};
  return tokenizer().decode(one);
}

// The log probabilities of what follows a text.
Tensor behind(const Tensor& text, const Edits& edits) {
  const Tensor logits = model().forward(text, {.edits = edits});
  return log_probabilities(logits.select(0, logits.size(0) - 1));
}

// The token that `one` makes likelier than `other` does, by the most, and the other way round.
TokenPair apart(const Tensor& one, const Tensor& other) {
  TokenPair tokens;
  double most = 0, least = 0;
  for (std::int64_t id = 0; id < one.numel(); ++id) {
    const double more = std::exp(one.at({id})) - std::exp(other.at({id}));
    if (more > most) most = more, tokens.a = id;
    if (more < least) least = more, tokens.b = id;
  }
  return tokens;
}

std::string lens_json(const Tensor& text, const Edits& edits) {
  const Lens lens = logit_lens(model(), text, edits);
  Json json;
  json.object().name("tokens").array();
  for (std::int64_t l = 0; l < lens.tokens.size(0); ++l) {
    json.array();
    for (std::int64_t i = 0; i < lens.tokens.size(1); ++i)
      json.text(token(lens.tokens.select(0, l).data<std::int64_t>()[i]));
    json.end();
  }
  json.end();
  write(json, "chance", lens.probability);
  json.name("loss").array();
  for (std::int64_t l = 0; lens.losses.defined() && l < lens.losses.size(0); ++l)
    json.number(mean_of(lens.losses.select(0, l)));
  return json.end().end().str();
}

std::string effects_json(const Effects& found) {
  Json json;
  json.object().name("before").number(found.before);
  write(json, "after", found.after);
  return json.end().str();
}

std::string patching_json(const Patching& found, TokenPair tokens) {
  Json json;
  json.object().name("clean").number(found.clean).name("corrupt").number(found.corrupt);
  json.name("a").text(token(tokens.a)).name("b").text(token(tokens.b));
  write(json, "stream", found.stream);
  write(json, "heads", found.heads);
  return json.end().str();
}

// Holds the experiment that was begun, and what it says at its end.
struct Begun {
  std::shared_ptr<experiment::Passes> passes;
  std::function<std::string()> told;
};

Begun& begun() {
  static Begun& only = *new Begun;
  return only;
}

const char* say_left() { return say(Json().object().name("left").number(begun().passes->left()).end().str()); }

}  // namespace

void end_experiment() { begun() = {}; }

}  // namespace attn::web

using namespace attn;
using namespace attn::web;

const char* attn_lens(const std::int32_t* ids, std::size_t count, const char* edits) {
  return say(lens_json(text_of(ids, count), edits_of(edits)));
}

const char* attn_effects(const std::int32_t* ids, std::size_t count, const char* edits) {
  end_experiment();
  const auto passes = std::make_shared<experiment::HeadsOff>(
      model(), text_of(ids, count), EffectOptions{.edits = edits_of(edits)}, experiment::all_heads(model().config()));
  begun() = {passes, [passes] { return effects_json(passes->found); }};
  return say_left();
}

const char* attn_patching(const std::int32_t* ids, std::size_t count, const std::int32_t* other, std::size_t others,
                          const char* changes) {
  end_experiment();
  const Edits edits = edits_of(changes);
  const Tensor clean = text_of(ids, count), corrupt = text_of(other, others);
  const TokenPair tokens = apart(behind(clean, edits), behind(corrupt, edits));
  const auto passes = std::make_shared<experiment::Patched>(model(), clean, corrupt, tokens, edits);
  begun() = {passes, [passes, tokens] { return patching_json(passes->found, tokens); }};
  return say_left();
}

const char* attn_go_on(int most) {
  if (!begun().passes) throw Error(Error::Kind::argument, "page", "an experiment that was begun", "none");
  begun().passes->some(most);
  if (begun().passes->left() > 0) return say_left();
  const std::string told = begun().told();
  end_experiment();
  return say(told);
}
