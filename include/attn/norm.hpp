// Normalisation of rows: LayerNorm and RMSNorm.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "attn/module.hpp"

namespace attn {

// Models differ in what a norm makes of a row x.
enum class NormForm {
  layer,  // (x - mean) / √(variance + ε) · weight + bias (Ba et al. 2016), the variance biased
  rms,    // n · weight, n = x / √(mean(x²) + ε) (Zhang & Sennrich 2019) rounded to y's dtype before: Llama's
  rms_plus_one,  // n · (1 + weight), rounded last: Gemma's, whose weights begin at 0
};

// Acts over the last dimension. Throws Error for a width below 1 or an epsilon that is not finite and above 0
// (argument), for an x of another width (shape) or dtype (dtype), and for backward() without a forward pass.
class Norm : public Module {
 public:
  Norm(NormForm form, std::int64_t width, double epsilon, std::string_view name = {});
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override;
  Tensor forward(const Tensor& x, DType dtype);  // the same in float32 or bfloat16
  // The gradient of the last forward pass. Its x must be unchanged.
  Gradient backward(const Tensor& dy) override { return {backward(dy, {}), {}}; }
  // Returns dx. The gradient of a residual path beside this module is added to it, where it is defined.
  Tensor backward(const Tensor& dy, const Tensor& residual);
  Tensor output() const;  // of the last forward pass: kept in bfloat16, computed again in float32
  std::vector<Parameter*> parameters() override;

  Parameter weight, bias;  // (width): ones, or zeros where 1 is added, and zeros; only a LayerNorm has a bias

 private:
  const char* op() const noexcept { return form_ == NormForm::layer ? "LayerNorm" : "RMSNorm"; }
  std::int64_t run(std::int64_t rows) const;
  Tensor normalised(DType dtype) const;

  NormForm form_;
  double epsilon_;
  Tensor x_, mean_, rstd_, y_;  // y_ where bfloat16
};

class LayerNorm : public Norm {
 public:
  explicit LayerNorm(std::int64_t width, double epsilon = 1e-5, std::string_view name = {})
      : Norm(NormForm::layer, width, epsilon, name) {}
};

class RMSNorm : public Norm {
 public:
  explicit RMSNorm(std::int64_t width, double epsilon = 1e-6, NormForm form = NormForm::rms, std::string_view name = {})
      : Norm(form, width, epsilon, name) {}
};

}  // namespace attn
