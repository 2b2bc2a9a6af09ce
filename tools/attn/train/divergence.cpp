#include "train/divergence.hpp"

#include <cmath>

#include "common/format.hpp"

namespace attn::tool {
namespace {

std::string number(double x) { return std::isnan(x) ? "nan" : formatted("{:.4g}", x); }  // of either sign

}  // namespace

Error diverged(const std::string& found, const TrainingFiles& files, std::string_view advice) {
  return {Error::Kind::data, "train", "finite loss, gradient and weights", found,
          files.kept() + "; train with a smaller --lr or --clip" + std::string(advice)};
}

void Divergence::check(const Run::Step& step, const Run& run) {
  if (step.finite()) {
    in_a_row_ = 0;
    if (!step.validation || std::isfinite(*step.validation)) return;
    // The weights have changed: it is too late to leave the step out.
    throw diverged(formatted("validation loss {} after step {}, whose loss was {} and gradient norm {}",
                             number(*step.validation), run.steps_done(), number(step.loss), number(step.norm)),
                   files_);
  }
  const std::string found =
      formatted("loss {} and gradient norm {} at step {}", number(step.loss), number(step.norm), run.steps_done() + 1);
  if (then_ == Then::stop) throw diverged(found, files_, ", or leave such steps out by --on-nan skip");
  if (++in_a_row_ == kMost) throw diverged(formatted("{}, with {} batches in a row", found, kMost), files_);
}

}  // namespace attn::tool
