#include <string>

#include "attn/gpt.hpp"
#include "ops/dense.hpp"
#include "ops/input.hpp"

namespace attn {
namespace {

// Four times the width; a width that is no size is left for Linear to refuse.
std::int64_t inner(std::int64_t width) {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  return width > 0 && width < most ? 4 * width : width;
}

}  // namespace

FeedForward::FeedForward(std::int64_t width, Gelu form, std::string_view prefix)
    : c_fc(width, inner(width), true, std::string(prefix) + "c_fc"),
      c_proj(inner(width), width, true, std::string(prefix) + "c_proj"),
      gelu_(form) {}

Tensor FeedForward::forward(const Tensor& x, Trace* trace) {
  hidden_ = linear(c_fc, x, stored(c_fc.precision));
  const Tensor active = gelu(hidden_, gelu_), y = linear(c_proj, active, DType::f32);
  active_ = active.dtype() == DType::bf16 ? active : Tensor{};
  if (trace) trace->record("output", y);
  return y;
}

Tensor FeedForward::backward(const Tensor& dy, const Tensor& x) {
  require_forward("FeedForward", hidden_.defined());
  // y = c_proj(gelu(hidden)), hidden = c_fc(x)
  const Tensor active = active_.defined() ? active_ : gelu(hidden_, gelu_);
  const Tensor d_active = linear_backward(c_proj, dy, active, hidden_.dtype());
  return linear_backward(c_fc, gelu_backward(d_active, hidden_, gelu_), x, DType::f32);
}

std::vector<Parameter*> FeedForward::parameters() { return {&c_fc.weight, &c_fc.bias, &c_proj.weight, &c_proj.bias}; }

}  // namespace attn
