#include "attn/dropout.hpp"

#include <string>

#include "core/decimal.hpp"
#include "core/rows.hpp"
#include "ops/input.hpp"
#include "ops/sequence.hpp"

namespace attn {
namespace {

// x · keep / (1 - p)
Tensor kept(const Tensor& x, const Tensor& keep, double p) {
  const Tensor in = x.contiguous(), y = Tensor::empty(x.shape());
  const auto* from = in.data<float>();
  const auto* chosen = keep.data<bool>();
  auto* to = y.data<float>();
  const auto factor = static_cast<float>(p < 1 ? 1 / (1 - p) : 0);
  for_runs(x.numel(), 1, [=](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) to[i] = chosen[i] ? from[i] * factor : 0;
  });
  return y;
}

}  // namespace

Dropout::Dropout(double p, const Generator& rng) : p_(p), rng_(rng) {
  if (!(p >= 0 && p <= 1)) throw Error(Error::Kind::argument, "Dropout", "p in [0, 1]", shortest_decimal(p));
}

Tensor Dropout::forward(const Tensor& x, Trace*) {
  require_float32("Dropout", "x", x);
  keep_ = {}, ran_ = grad_enabled();
  if (!training_ || p_ == 0) return x;
  if (sequence_ || rng_.flavour() == DropoutFlavour::philox) {  // draws for (b, h, i, j)
    const std::int64_t last = x.size(-1), rows = x.rank() > 1 ? x.size(-2) : 1, batch = x.numel() / (rows * last);
    require_part("Dropout", sequence_.get(), x, -2);
    keep_ = dropout_keep(rng_, sequence_.get(), {batch, 1, rows, last}, p_).view(x.shape());
  } else {
    keep_ = rng_.dropout_keep(x.shape(), p_);
  }
  return kept(x, keep_, p_);
}

Module::Gradient Dropout::backward(const Tensor& dy) {
  require_forward("Dropout", ran_);
  if (keep_.defined() && !(dy.shape() == keep_.shape())) {
    throw Error(Error::Kind::shape, "Dropout", "dy of x's shape " + keep_.shape().str(), dy.shape().str());
  }
  // y = x · keep / (1 - p)
  return {keep_.defined() ? kept(dy, keep_, p_) : dy, {}};
}

}  // namespace attn
