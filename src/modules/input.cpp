#include "modules/input.hpp"

#include "attn/reference.hpp"

namespace attn {

void accumulate(Parameter& parameter, const Tensor& grad) {
  parameter.grad = parameter.grad.defined() ? reference::add(parameter.grad, grad) : grad;
}

void record_steps(Trace& to, const Trace& from, bool drop_batch, bool drop_heads) {
  for (const auto& [name, value] : from.steps()) {
    Tensor step = drop_heads ? value.select(1, 0) : value;
    if (drop_batch) step = step.select(0, 0);
    to.record(name, step);
  }
}

}  // namespace attn
