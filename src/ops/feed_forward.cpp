#include "attn/feed_forward.hpp"

#include <string>

#include "core/known.hpp"
#include "ops/activation.hpp"
#include "ops/dense.hpp"
#include "ops/input.hpp"

namespace attn {
namespace {

constexpr const char* kFeedForward = "FeedForward";

FeedForwardConfig checked(FeedForwardConfig c) {
  require_positive(kFeedForward, "width", c.width);
  constexpr std::int64_t most = std::int64_t{1} << 40;  // a width that is no size is left for Linear to refuse
  if (c.inner_width == 0) c.inner_width = c.width < most ? 4 * c.width : c.width;
  require_positive(kFeedForward, "inner_width", c.inner_width);
  require_known(kFeedForward, "activation", c.activation, Activation::sigmoid);
  if (!c.gated) require_gelu(kFeedForward, c.activation);
  return c;
}

void require_shape(const char* what, const Tensor& given, const Shape& shape) {
  if (given.shape() == shape) return;
  throw Error(Error::Kind::shape, kFeedForward, std::string(what) + " of the forward pass's shape " + shape.str(),
              given.shape().str());
}

}  // namespace

FeedForward::FeedForward(const FeedForwardConfig& config, std::string_view prefix, const FeedForwardNames& names)
    : up(config.width, checked(config).inner_width, config.has_bias, std::string(prefix).append(names.up)),
      down(checked(config).inner_width, config.width, config.has_bias, std::string(prefix).append(names.down)),
      activation_(config.activation) {
  if (config.gated) {
    gate.emplace(config.width, checked(config).inner_width, config.has_bias, std::string(prefix).append(names.gate));
    gate->precision = config.precision;
  }
  up.precision = down.precision = config.precision;
}

Tensor FeedForward::active() const { return gate ? gated(gate_, up_, activation_) : gelu(up_, activation_); }

Tensor FeedForward::forward(const Tensor& x, Trace* trace) {
  const DType kept = stored(up);
  if (gate) gate_ = linear(*gate, x, kept);
  up_ = linear(up, x, kept);
  const Tensor inner = active();
  active_ = !gate && inner.dtype() == DType::bf16 ? inner : Tensor{};
  if (!grad_enabled()) gate_ = up_ = active_ = {};
  const Tensor y = linear(down, inner, DType::f32);
  if (trace) trace->record("output", y);
  return y;
}

Tensor FeedForward::backward(const Tensor& dy, const Tensor& x) {
  require_forward(kFeedForward, up_.defined());
  Shape shape = up_.shape();
  shape.back() = down.weight.value.size(0);
  require_shape("dy", dy, shape);
  require_shape("x", x, shape);
  // y = down(active)
  const Tensor d_active = linear_backward(down, dy, active_.defined() ? active_ : active(), up_.dtype());
  // active = gelu(up(x))
  if (!gate) return linear_backward(up, gelu_backward(d_active, up_, activation_), x, DType::f32);
  // active = activation(gate(x)) · up(x)
  const GatedGradient d = gated_backward(d_active, gate_, up_, activation_);
  const Tensor dx = linear_backward(*gate, d.gate, x, DType::f32);
  return linear_backward(up, d.up, x, DType::f32, dx);
}

std::vector<Parameter*> FeedForward::parameters() { return parameters_of({gate ? &*gate : nullptr, &up, &down}); }

}  // namespace attn
