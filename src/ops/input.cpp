#include "ops/input.hpp"

#include "attn/reference.hpp"
#include "core/rows.hpp"

namespace attn {

void accumulate(Parameter& parameter, const Tensor& grad) {
  if (!parameter.grad.defined()) {
    parameter.grad = grad;
  } else if (parameter.grad.is_contiguous()) {
    add_in_place(parameter.grad, grad.contiguous());
  } else {
    parameter.grad = reference::add(parameter.grad, grad);
  }
}

void record_steps(Trace& to, const Trace& from, bool drop_batch, bool drop_heads) {
  for (const auto& [name, value] : from.steps()) {
    Tensor step = drop_heads ? value.select(1, 0) : value;
    if (drop_batch) step = step.select(0, 0);
    to.record(name, step);
  }
}

Trace before_rotation(const Trace& steps, const Tensor& queries, const Tensor& keys) {
  Trace all;
  for (const auto& [name, value] : steps.steps()) {
    all.record(name, name == "queries" ? queries : name == "keys" ? keys : value);
    if (name != "values") continue;
    all.record("rotated queries", steps["queries"]);
    all.record("rotated keys", steps["keys"]);
  }
  return all;
}

}  // namespace attn
