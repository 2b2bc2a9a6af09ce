// This header turns gradients into training: AdamW, clipping, and the learning rate's schedule.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attn/module.hpp"

namespace attn {

struct AdamWConfig {
  double beta1 = 0.9, beta2 = 0.95;  // GPT-3's (Brown et al. 2020, appendix B)
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // of matrices; vectors (biases, LayerNorm) do not decay
};

// Adam with decoupled weight decay (Loshchilov & Hutter 2019), as torch.optim.AdamW computes it, on weights in place.
class AdamW {
 public:
  // The parameters must outlive the optimizer, and keep their shapes; float32.
  explicit AdamW(std::vector<Parameter*> parameters, AdamWConfig config = {});

  // One step at this learning rate. Gradients are multiplied by grad_factor first (clipping); a parameter without
  // one is left alone. Throws Error (argument) for a factor that is not finite, as clip_factor() returns it where
  // a gradient is not, and (shape, dtype) for a weight that was replaced by one of another shape, and changes nothing.
  void step(double rate, double grad_factor = 1);
  std::int64_t steps() const noexcept { return steps_; }

  // "steps", and "exp_avg.NAME", "exp_avg_sq.NAME" of every parameter: what resumes a run bit for bit. Throws Error
  // (argument) for two parameters of one name.
  StateDict state_dict() const;
  // Throws Error (data, shape, dtype) for a state that does not fit, and changes nothing.
  void load_state_dict(const StateDict& state);

 private:
  std::vector<Parameter*> parameters_;
  AdamWConfig config_;
  std::vector<Tensor> mean_, square_;
  std::int64_t steps_ = 0;
};

// √Σ grad², over all parameters: torch.nn.utils.clip_grad_norm_'s norm. Not finite exactly when a gradient is not,
// which is how a loop sees that training diverged: the sum is of doubles, which no finite gradient overflows.
double gradient_norm(std::span<Parameter* const> parameters);
// Returns the factor of gradients that brings their norm to at most `limit`, as clip_grad_norm_ does; 1 without a
// limit (0). NaN for a norm that is not finite, with a limit or without.
double clip_factor(double norm, double limit);

// Linear warm-up to `peak`, then half a cosine down to `floor`, which is the rate of step `steps`, one after the last
// (Loshchilov & Hutter 2017); as PyTorch's CosineAnnealingLR.
struct CosineSchedule {
  double peak = 1e-3, floor = 1e-4;
  std::int64_t warmup = 100, steps = 5000;
  // Of step 0, 1, …. Throws Error (argument) for a number below 0, and for a rate that is not finite.
  double rate(std::int64_t step) const;
};

}  // namespace attn
