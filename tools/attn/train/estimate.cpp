#include "train/estimate.hpp"

#include <algorithm>
#include <array>

#include "common/format.hpp"
#include "common/terminal.hpp"
#include "train/progress.hpp"

namespace attn::tool {
namespace {

constexpr double kLong = 600;  // seconds: a longer run is offered smaller sizes

struct Size {
  std::int64_t layers, heads, width, context;
};
// From large to small.
constexpr std::array kSizes{Size{6, 6, 192, 128}, Size{4, 4, 128, 128}, Size{2, 4, 64, 64}};

// Multiply-adds of a token's forward pass: the matrices of each block, its attention, and the head.
double work(const GPTConfig& model, const Size& size) {
  const auto layers = static_cast<double>(size.layers), width = static_cast<double>(size.width);
  return layers * (12 * width * width + 2 * width * static_cast<double>(size.context)) +
         width * static_cast<double>(model.vocab_size);
}

std::string flags_text(const Size& size) {
  return formatted("--layers {} --heads {} --width {} --context {}", size.layers, size.heads, size.width, size.context);
}

}  // namespace

std::string estimate_text(Training& training, std::int64_t steps, double minutes, bool settable) {
  Trainer& run = training.trainer;
  const double a_step = run.trial(), tokens = static_cast<double>(run.tokens_a_step());
  const double all = a_step * static_cast<double>(steps), limit = 60 * minutes;
  const double seconds = minutes > 0 ? std::min(all, limit) : all;
  std::string text = formatted("a trial step ran at {:.0f} tokens/s: {} will take about {}", tokens / a_step,
                               counted(steps, "step"), duration_text(all));
  if (minutes > 0 && limit < all) text += formatted(", of which --minutes leaves {}", duration_text(limit));
  text += "\n";
  if (seconds <= kLong) return text;
  const GPTConfig& model = training.settings.model;
  const double mine = work(model, {model.layers, model.heads, model.width, model.context_length}) * tokens;
  if (settable) {
    for (const Size& size : kSizes) {
      const double other = work(model, size) * static_cast<double>(run.config().batch * size.context);
      if (other > mine / 2) continue;
      text += formatted("  {}: about {}\n", flags_text(size), duration_text(all * other / mine));
    }
  }
  return text + "  --minutes 10: stops then, and --resume goes on\n";
}

}  // namespace attn::tool
