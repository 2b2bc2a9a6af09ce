#include "attn/generate.hpp"

#include <algorithm>
#include <string>

#include "attn/error.hpp"

namespace attn {
namespace {

constexpr const char* kGenerate = "generate";

using Ids = std::vector<std::int64_t>;

void check(std::span<const Ids> prompts, const GenerateOptions& options, const LanguageModelConfig& c) {
  require_valid(options);
  if (prompts.empty()) throw Error(Error::Kind::argument, kGenerate, "at least one prompt", "none");
  for (const Ids& prompt : prompts) {
    const auto length = static_cast<std::int64_t>(prompt.size());
    if (length == 0) throw Error(Error::Kind::argument, kGenerate, "a prompt of at least one token", "none");
    if (c.learned_positions || (length <= c.context_length && options.tokens <= c.context_length - length)) continue;
    throw Error(Error::Kind::argument, kGenerate,
                "prompt and tokens of at most context_length = " + std::to_string(c.context_length) + " together",
                std::to_string(length) + " and " + std::to_string(options.tokens),
                "ask for fewer tokens, or shorten the prompt");
  }
}

// Room for the longest prompt, and for as many new tokens as one is likely to ask for: more make room of their own.
std::int64_t capacity(std::span<const Ids> prompts, std::int64_t tokens, std::int64_t context) {
  constexpr std::int64_t likely = 1024;
  std::int64_t longest = 0;
  for (const Ids& prompt : prompts) longest = std::max<std::int64_t>(longest, std::ssize(prompt));
  return std::min(longest + std::min(tokens, likely), context);
}

}  // namespace

void require_valid(const GenerateOptions& options) {
  if (options.tokens < 0) {
    throw Error(Error::Kind::argument, kGenerate, "tokens of at least 0", std::to_string(options.tokens));
  }
  require_valid(options.sampling);
}

Generation::Generation(LanguageModel& model, std::span<const Ids> prompts, const GenerateOptions& options,
                       std::uint64_t seed)
    : options_((check(prompts, options, model.config()), options)),
      context_(model.config().context_length),
      next_(prompts.size()),
      decoder_(model, std::ssize(prompts), options.cache, options.make_cache,
               capacity(prompts, options.tokens, context_)) {
  for (const Ids& prompt : prompts) texts_.push_back({prompt, prompt.size(), Generator(seed), options.tokens == 0});
}

bool Generation::unfinished() const { return !std::ranges::all_of(texts_, &Text::done); }

void Generation::draw(std::size_t i, const Tensor& logits, const std::function<bool(std::size_t, std::int64_t)>& each) {
  Text& text = texts_[i];
  if (text.done) return;
  const std::int64_t id = next_token(logits, options_, text.rng, text.ids);
  text.done = text.stopped = std::ranges::find(options_.stops, id) != options_.stops.end();
  if (text.done) return;
  text.ids.push_back(next_[i] = id);
  const auto written = static_cast<std::int64_t>(text.ids.size() - text.prompt);
  text.stopped = each && !each(i, id);
  text.done = text.stopped || written == options_.tokens;
}

// All of a text, or its latest half, from the first position on.
Tensor Generation::read_anew(std::size_t i, bool all) {
  const auto item = static_cast<std::int64_t>(i);
  decoder_.truncate(item, 0);
  const std::span<const std::int64_t> ids = texts_[i].ids;
  const auto half = static_cast<std::size_t>(std::max<std::int64_t>(1, context_ / 2));
  return decoder_.read(item, all ? ids : ids.last(std::min(half, ids.size())));
}

bool Generation::step(const std::function<bool(std::size_t, std::int64_t)>& each) {
  if (!whole_) throw Error(Error::Kind::argument, kGenerate, "steps that ended", "one that threw", "begin anew");
  if (!unfinished()) return false;
  whole_ = false;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    if (begun_ && decoder_.length(static_cast<std::int64_t>(i)) < context_) continue;
    draw(i, read_anew(i, !begun_ && std::ssize(texts_[i].ids) <= context_), each);
  }
  if (begun_ && context_ > 1 && unfinished()) {  // beside a context of one token there is no room for the next
    const Tensor logits = decoder_.read(next_);
    for (std::size_t i = 0; i < texts_.size(); ++i) draw(i, logits.select(0, static_cast<std::int64_t>(i)), each);
  }
  begun_ = whole_ = true;
  return unfinished();
}

std::vector<Continuation> Generation::texts() const {
  std::vector<Continuation> result;
  for (const Text& text : texts_) {
    result.push_back({{text.ids.begin() + static_cast<std::ptrdiff_t>(text.prompt), text.ids.end()}, text.stopped});
  }
  return result;
}

std::vector<Continuation> generate(LanguageModel& model, std::span<const Ids> prompts, const GenerateOptions& options,
                                   std::uint64_t seed, const std::function<bool(std::size_t, std::int64_t)>& each) {
  Generation generation(model, prompts, options, seed);
  while (generation.step(each)) {
  }
  return generation.texts();
}

}  // namespace attn
