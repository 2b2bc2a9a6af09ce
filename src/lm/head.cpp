#include "lm/head.hpp"

#include <algorithm>
#include <cmath>

#include "attn/cross_entropy.hpp"
#include "core/rows.hpp"
#include "ops/dense.hpp"

namespace attn {
namespace {

constexpr std::int64_t kLogits = std::int64_t{1} << 24, kLeastRows = 1024;  // of a part of a loss

// x becomes cap · tanh(x / cap)
void cap_in_place(const Tensor& x, double softcap) {
  const auto cap = static_cast<float>(softcap);
  auto* value = x.data<float>();
  for_runs(x.numel(), 20, [=](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) value[i] = cap * std::tanh(value[i] / cap);
  });
}

// dy · (1 - (y / cap)²)
Tensor uncapped(const Tensor& dy, const Tensor& y, double softcap) {
  const Tensor dx = Tensor::empty(dy.shape()), in = dy.contiguous(), capped = y.contiguous();
  const auto cap = static_cast<float>(softcap);
  const float *g = in.data<float>(), *value = capped.data<float>();
  auto* out = dx.data<float>();
  for_runs(dx.numel(), 3, [=](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) {
      const float t = value[i] / cap;
      out[i] = g[i] * (1 - t * t);
    }
  });
  return dx;
}

}  // namespace

Tensor logits_of(const Head& head, const Tensor& hidden) {
  const Tensor logits = project(hidden, head.weight, {}, {head.precision, {}, {}, head.scales, head.blocks.get()});
  scale_in_place(logits, head.scale);
  if (head.softcap > 0) cap_in_place(logits, head.softcap);
  return logits;
}

HeadGradient logits_backward(const Head& head, const Tensor& d_logits, const Tensor& logits, const Tensor& hidden) {
  Tensor d = head.softcap > 0 ? uncapped(d_logits, logits, head.softcap) : d_logits;
  if (head.scale != 1) scale_in_place(d = head.softcap > 0 ? d : d.clone(), head.scale);
  // logits = hidden · weightᵀ
  ProductOptions options{head.precision};
  options.weight_gradient = head.requires_grad;
  const auto grad = project_backward(d, hidden, head.weight, false, options);
  return {grad.x, grad.weight};
}

HeadLoss head_loss(const Head& head, const Tensor& hidden, const Tensor& targets, bool with_gradient) {
  const Tensor x = hidden.view({-1, hidden.size(-1)}), wanted = targets.contiguous().view({-1});
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < wanted.numel(); ++i) count += wanted.data<std::int64_t>()[i] != -100;
  const double factor = count == 0 ? 0 : 1 / static_cast<double>(count);
  const std::int64_t rows = x.size(0), part = std::max(kLeastRows, kLogits / head.weight.size(0));
  double sum = 0;
  Tensor d_weight;
  const Tensor d_hidden = with_gradient ? Tensor::empty(x.shape()) : Tensor{};
  for (std::int64_t first = 0; first < rows; first += part) {
    const std::int64_t last = std::min(rows, first + part);
    const Tensor some = x.slice(0, first, last), target = wanted.slice(0, first, last);
    const Tensor logits = logits_of(head, some);
    const Tensor kept = with_gradient && head.softcap > 0 ? logits.clone() : Tensor{};
    const CrossEntropy entropy =
        with_gradient ? cross_entropy_in_place(logits, target, factor) : cross_entropy(logits, target);
    sum += entropy.loss * static_cast<double>(entropy.count);
    if (!with_gradient) continue;
    const HeadGradient grad = logits_backward(head, logits, kept, some);
    d_hidden.slice(0, first, last).copy_from(grad.hidden);
    if (first == 0) {
      d_weight = grad.weight;
    } else if (head.requires_grad) {
      add_in_place(d_weight, grad.weight);
    }
  }
  return {sum * factor, count, {with_gradient ? d_hidden.view(hidden.shape()) : Tensor{}, d_weight}};
}

}  // namespace attn
