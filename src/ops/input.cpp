#include "ops/input.hpp"

#include "attn/reference.hpp"
#include "core/rows.hpp"
#include "ops/weights.hpp"

namespace attn {

void require_gradient(const char* op, const Tensor& dz, const Shape& shape, DType stored) {
  if (!(dz.shape() == shape))
    throw Error(Error::Kind::shape, op, "dz of the output's shape " + shape.str(), dz.shape().str());
  if (dz.dtype() != DType::f32 && dz.dtype() != stored)
    throw Error(Error::Kind::dtype, op, "dz of dtype float32", name(dz.dtype()), "convert it to float32");
}

std::vector<Parameter*> parameters_of(std::initializer_list<Module*> parts) {
  std::vector<Parameter*> all;
  for (Module* part : parts) {
    const std::vector<Parameter*> own = part ? part->parameters() : std::vector<Parameter*>{};
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

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
