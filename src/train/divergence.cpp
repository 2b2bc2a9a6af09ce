#include "attn/train.hpp"
#include "train/config.hpp"

namespace attn {

std::optional<std::string> Divergence::ends(const Trainer::Step& step) {
  const std::string loss = number(step.loss, 4), norm = " and gradient norm " + number(step.norm, 4);
  if (step.finite()) {
    in_a_row_ = 0;
    if (!step.validation || std::isfinite(*step.validation)) return {};
    return "validation loss " + number(*step.validation, 4) + " after step " + std::to_string(step.number) +
           ", whose loss was " + loss + norm;
  }
  const std::string told = "loss " + loss + norm + " at step " + std::to_string(step.number);
  if (then_ == Then::stop) return told;
  if (++in_a_row_ < kMost) return {};
  return told + ", with " + std::to_string(kMost) + " batches in a row";
}

}  // namespace attn
