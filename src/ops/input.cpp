#include "ops/input.hpp"

#include "attn/reference.hpp"
#include "core/rows.hpp"
#include "ops/weights.hpp"

namespace attn {

void accumulate(Parameter& parameter, const Tensor& grad) {
  if (!parameter.requires_grad) return;
  if (!parameter.grad.defined()) {
    parameter.grad = grad;
    return;
  }
  require_gradient_shape(parameter);
  if (parameter.grad.is_contiguous()) {
    add_in_place(parameter.grad, grad.contiguous());
  } else {
    parameter.grad = reference::add(parameter.grad, grad);
  }
}

Trace steps_within(Trace& trace, bool drop_batch, bool drop_heads, bool turned) {
  const auto outside = [turned](const std::string& step) {
    return turned && (step == "queries" || step == "keys") ? "rotated " + step : step;
  };
  return Trace({.watches = [&trace, outside](const std::string& step) { return trace.watches(outside(step)); },
                .edit =
                    [&trace, outside, drop_batch, drop_heads](const std::string& step, const Tensor& value) {
                      Tensor shown = drop_heads ? value.select(1, 0) : value;
                      if (drop_batch) shown = shown.select(0, 0);
                      Tensor edited = trace.pass(outside(step), shown);
                      if (drop_batch) edited = edited.unsqueeze(0);
                      return drop_heads ? edited.unsqueeze(1) : edited;
                    }});
}

}  // namespace attn
