#include <string>

#include "attn/gpt.hpp"
#include "modules/input.hpp"

namespace attn {

FeedForward::FeedForward(std::int64_t width, Gelu form, std::string_view prefix)
    : c_fc(width, 4 * width, true, std::string(prefix) + "c_fc"),
      c_proj(4 * width, width, true, std::string(prefix) + "c_proj"),
      gelu_(form) {}

Tensor FeedForward::forward(const Tensor& x, Trace* trace) {
  hidden_ = c_fc.forward(x);
  const Tensor y = c_proj.forward(gelu(hidden_, gelu_));
  if (trace) trace->record("output", y);
  return y;
}

Tensor FeedForward::backward(const Tensor& dy, const Tensor& x) {
  require_forward("FeedForward", hidden_.defined());
  // y = c_proj(gelu(hidden)), hidden = c_fc(x)
  const Tensor d_active = c_proj.backward(dy, gelu(hidden_, gelu_));
  return c_fc.backward(gelu_backward(d_active, hidden_, gelu_), x);
}

std::vector<Parameter*> FeedForward::parameters() { return {&c_fc.weight, &c_fc.bias, &c_proj.weight, &c_proj.bias}; }

}  // namespace attn
