#include "attn/generate.hpp"

#include <algorithm>
#include <string>

#include "attn/error.hpp"

namespace attn {
namespace {

constexpr const char* kOp = "generate";

using Ids = std::vector<std::int64_t>;

void check(std::span<const Ids> prompts, const GenerateOptions& options, const LanguageModelConfig& c) {
  require_valid(options);
  if (prompts.empty()) throw Error(Error::Kind::argument, kOp, "at least one prompt", "none");
  for (const Ids& prompt : prompts) {
    const auto length = static_cast<std::int64_t>(prompt.size());
    if (length == 0) throw Error(Error::Kind::argument, kOp, "a prompt of at least one token", "none");
    if (c.learned_positions || (length <= c.context_length && options.tokens <= c.context_length - length)) continue;
    throw Error(Error::Kind::argument, kOp,
                "prompt and tokens of at most context_length = " + std::to_string(c.context_length) + " together",
                std::to_string(length) + " and " + std::to_string(options.tokens),
                "ask for fewer tokens, or shorten the prompt");
  }
}

// One of the texts.
struct Text {
  Ids ids;  // prompt and all
  Generator rng;
  bool done = false, stopped = false;
};

}  // namespace

void require_valid(const GenerateOptions& options) {
  if (options.tokens < 0) {
    throw Error(Error::Kind::argument, kOp, "tokens of at least 0", std::to_string(options.tokens));
  }
  require_valid(options.sampling);
}

std::vector<Continuation> generate(LanguageModel& model, std::span<const Ids> prompts, const GenerateOptions& options,
                                   std::uint64_t seed, const std::function<bool(std::size_t, std::int64_t)>& each) {
  check(prompts, options, model.config());
  const std::int64_t context = model.config().context_length, half = std::max<std::int64_t>(1, context / 2);
  std::vector<Text> texts;
  for (const Ids& prompt : prompts) texts.push_back({prompt, Generator(seed), options.tokens == 0});
  Ids next(texts.size());  // of a text that is done the last one again, which nobody reads
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

  Decoder decoder(model, static_cast<std::int64_t>(texts.size()), options.cache, options.make_cache);
  // All of a text, or its latest half, from the first position on.
  const auto read_anew = [&](std::size_t i, bool all) {
    const auto item = static_cast<std::int64_t>(i);
    decoder.truncate(item, 0);
    const std::span<const std::int64_t> ids = texts[i].ids;
    const auto latest = std::min(static_cast<std::size_t>(half), ids.size());
    draw(i, decoder.read(item, all ? ids : ids.last(latest)));
  };
  for (std::size_t i = 0; i < texts.size() && options.tokens > 0; ++i) {
    read_anew(i, static_cast<std::int64_t>(prompts[i].size()) <= context);
  }
  while (unfinished()) {
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (decoder.length(static_cast<std::int64_t>(i)) >= context) read_anew(i, false);
    }
    if (!unfinished()) break;
    const Tensor logits = decoder.read(next);
    for (std::size_t i = 0; i < texts.size(); ++i) draw(i, logits.select(0, static_cast<std::int64_t>(i)));
  }
  std::vector<Continuation> result;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Ids& ids = texts[i].ids;
    result.push_back({{ids.begin() + static_cast<std::ptrdiff_t>(prompts[i].size()), ids.end()}, texts[i].stopped});
  }
  return result;
}

}  // namespace attn
