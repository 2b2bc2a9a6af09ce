// scores: s_ij = q_i · k_j, then scale, softcap and bias.
#include <cmath>

#include "attn/reference.hpp"
#include "reference/elementwise.hpp"
#include "reference/matmul.hpp"

namespace attn::reference {

Tensor scores_by_loop(const Tensor& q, const Tensor& k) {
  require(q.rank() == 2 && k.rank() == 2 && q.size(1) == k.size(1), "scores", "q (tq, d) and k (tk, d)",
          q.shape().str() + " and " + k.shape().str());
  require_same_dtype("scores", q, k);
  Tensor s = Tensor::empty({q.size(0), k.size(0)}, q.dtype());
  const Tensor queries = q.contiguous(), keys = k.contiguous();
  visit_floating("scores", q.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t tq = q.size(0), tk = k.size(0), d = q.size(1);
    for (std::int64_t i = 0; i < tq; ++i) {
      for (std::int64_t j = 0; j < tk; ++j) {
        Wide<T> dot = 0;
        for (std::int64_t c = 0; c < d; ++c) {
          dot += widen(queries.data<T>()[i * d + c]) * widen(keys.data<T>()[j * d + c]);
        }
        s.data<T>()[i * tk + j] = narrow<T>(dot);
      }
    }
  });
  return s;
}

Tensor scores(const Tensor& q, const Tensor& k) {
  require(q.rank() >= 2 && k.rank() >= 2 && q.size(-1) == k.size(-1), "scores", "q (…, tq, d) and k (…, tk, d)",
          q.shape().str() + " and " + k.shape().str());
  return matmul(q, k.transpose(-1, -2));
}

ScoresGradient scores_backward(const Tensor& ds, const Tensor& q, const Tensor& k) {
  return {matmul(ds, k, Zero::skips),                     // s = q · kᵀ
          matmul(ds.transpose(-1, -2), q, Zero::skips)};  // s = q · kᵀ
}

Tensor scale(const Tensor& s, double factor) {
  // A larger factor would overflow the wide type, and takes every float32 past its range just the same.
  const double f = s.dtype() == DType::f64 ? factor : std::fmin(std::fmax(factor, -1e260), 1e260);
  return map("scale", s, [f](auto x) { return x * static_cast<decltype(x)>(f); });
}

Tensor softcap(const Tensor& s, double cap) {
  return map("softcap", s, [cap](auto x) {
    const auto c = static_cast<decltype(x)>(cap);
    return c * std::tanh(x / c);
  });
}

Tensor softcap_backward(const Tensor& dy, const Tensor& s, double cap) {
  // y = cap · tanh(s / cap); what is masked later has a gradient of zero, and may be NaN
  return map("softcap", dy, s, [cap](auto g, auto x) {
    const auto t = std::tanh(x / static_cast<decltype(x)>(cap));
    return g == 0 ? g : g * (1 - t * t);
  });
}

Tensor add(const Tensor& s, const Tensor& bias) {
  return map("add", s, bias, [](auto x, auto b) { return x + b; });
}

}  // namespace attn::reference
