#include "attn/generate.hpp"

#include <algorithm>
#include <string>

#include "attn/error.hpp"

namespace attn {
namespace {

constexpr const char* kOp = "generate";

void check(std::span<const std::vector<std::int64_t>> prompts, const GenerateOptions& options, std::int64_t context) {
  require_valid(options);
  if (prompts.empty()) throw Error(Error::Kind::argument, kOp, "at least one prompt", "none");
  for (const std::vector<std::int64_t>& prompt : prompts) {
    const auto length = static_cast<std::int64_t>(prompt.size());
    if (length == 0) throw Error(Error::Kind::argument, kOp, "a prompt of at least one token", "none");
    if (length <= context && options.tokens <= context - length) continue;
    throw Error(Error::Kind::argument, kOp,
                "prompt and tokens of at most context_length = " + std::to_string(context) + " together",
                std::to_string(length) + " and " + std::to_string(options.tokens),
                "ask for fewer tokens, or shorten the prompt");
  }
}

// One of the texts.
struct Text {
  std::vector<std::int64_t> ids;  // prompt and all
  Generator rng;
  bool done = false, stopped = false;
};

}  // namespace

std::vector<Continuation> generate(LanguageModel& model, std::span<const std::vector<std::int64_t>> prompts,
                                   const GenerateOptions& options, std::uint64_t seed,
                                   const std::function<bool(std::size_t, std::int64_t)>& each) {
  check(prompts, options, model.config().context_length);
  std::vector<Text> texts;
  for (const auto& prompt : prompts) texts.push_back({prompt, Generator(seed), options.tokens == 0});
  std::vector<std::int64_t> next(texts.size());  // of a text that is done the last one again, which nobody reads
  const auto draw = [&](std::size_t i, const Tensor& logits) {
    Text& text = texts[i];
    if (text.done) return;
    const std::int64_t id = next_token(logits, options, text.rng, text.ids);
    text.done = text.stopped = std::ranges::find(options.stops, id) != options.stops.end();
    if (text.done) return;
    text.ids.push_back(next[i] = id);
    const auto written = static_cast<std::int64_t>(text.ids.size() - prompts[i].size());
    text.stopped = each && !each(i, id);
    text.done = text.stopped || written == options.tokens;
  };
  const auto unfinished = [&] { return !std::ranges::all_of(texts, &Text::done); };

  LanguageDecoder decoder(model, static_cast<std::int64_t>(texts.size()), options.cache, options.make_cache);
  for (std::size_t i = 0; i < texts.size() && options.tokens > 0; ++i) {
    draw(i, decoder.read(static_cast<std::int64_t>(i), prompts[i]));
  }
  while (unfinished()) {
    const Tensor logits = decoder.read(next);
    for (std::size_t i = 0; i < texts.size(); ++i) draw(i, logits.select(0, static_cast<std::int64_t>(i)));
  }
  std::vector<Continuation> result;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::vector<std::int64_t>& ids = texts[i].ids;
    result.push_back({{ids.begin() + static_cast<std::ptrdiff_t>(prompts[i].size()), ids.end()}, texts[i].stopped});
  }
  return result;
}

}  // namespace attn
