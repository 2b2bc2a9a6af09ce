// softmax: scores become weights that sum to 1.
#include <algorithm>
#include <cmath>

#include "attn/reference.hpp"
#include "reference/elementwise.hpp"

namespace attn::reference {
namespace {

template <class Row>
auto sum_of(const Row& row) {
  std::decay_t<decltype(row[0])> sum = 0;
  for (const auto x : row) sum += x;
  return sum;
}

// The largest score, NaN if there is one.
template <class Row>
auto max_of(const Row& row) {
  auto most = row[0];
  for (const auto x : row) most = x > most || std::isnan(x) ? x : most;
  return most;
}

}  // namespace

Tensor normalise_by_sum(const Tensor& s) {
  return map_rows("normalise_by_sum", s, [](const auto& row) {
    const auto sum = sum_of(row);
    for (auto& x : row) x /= sum;
  });
}

Tensor softmax_naive(const Tensor& s) {
  // In the scores' own type: overflow is the lesson.
  Tensor out = s.clone();
  visit_floating("softmax_naive", s.dtype(), [&](auto zero) {
    using T = decltype(zero);
    using Exp = std::conditional_t<is_half<T>, float, T>;
    const std::int64_t n = s.size(-1);
    for (T* row = out.data<T>(); n != 0 && row != out.data<T>() + out.numel(); row += n) {
      Exp sum = 0;
      for (std::int64_t j = 0; j < n; ++j) sum += std::exp(static_cast<Exp>(row[j]));
      for (std::int64_t j = 0; j < n; ++j) row[j] = static_cast<T>(std::exp(static_cast<Exp>(row[j])) / sum);
    }
  });
  return out;
}

Tensor softmax(const Tensor& s) {
  return map_rows("softmax", s, [](const auto& row) {
    const auto most = max_of(row);
    if (most == -INFINITY) {
      std::fill(row.begin(), row.end(), 0);  // every key is masked
      return;
    }
    constexpr int masked = -1;  // which no exponential is
    for (auto& x : row) x = x == -INFINITY ? masked : std::exp(x - most);
    std::decay_t<decltype(row[0])> sum = 0;
    for (const auto x : row) sum += x == masked ? 0 : x;
    for (auto& x : row) x = x == masked ? 0 : x / sum;  // in a row of NaN too
  });
}

Tensor softmax_backward(const Tensor& dw, const Tensor& weights) {
  // w = exp(s) / Σ exp(s): ds_j = w_j · (dw_j - Σ_l w_l dw_l)
  require(dw.shape() == weights.shape(), "softmax_backward", "dw of the weights' shape " + weights.shape().str(),
          dw.shape().str());
  Tensor ds = Tensor::empty(dw.shape(), dw.dtype());
  const Tensor g = dw.contiguous(), w = weights.contiguous();
  visit_floating("softmax_backward", dw.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t n = dw.size(-1), rows = n == 0 ? 0 : dw.numel() / n;
    for (std::int64_t i = 0; i < rows; ++i) {
      Wide<T> sum = 0;
      for (std::int64_t j = i * n; j < (i + 1) * n; ++j) {
        if (widen(w.data<T>()[j]) != 0) sum += widen(w.data<T>()[j]) * widen(g.data<T>()[j]);
      }
      for (std::int64_t j = i * n; j < (i + 1) * n; ++j) {
        const auto weight = widen(w.data<T>()[j]);
        ds.data<T>()[j] = narrow<T>(weight == 0 ? 0 : weight * (widen(g.data<T>()[j]) - sum));
      }
    }
  });
  return ds;
}

Tensor log_sum_exp(const Tensor& s) {
  require(s.rank() >= 1, "log_sum_exp", "at least one dimension", s.shape().str());
  Tensor out = Tensor::full(leading(s.shape(), 1), -INFINITY, s.dtype());
  const Tensor in = s.contiguous();
  if (s.numel() == 0) return out;
  visit_floating("log_sum_exp", s.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t n = s.size(-1);
    const T* from = in.data<T>();
    T* to = out.data<T>();
    parallel_for(out.numel(), static_cast<std::size_t>(n) * sizeof(Wide<T>), 16 * static_cast<double>(s.numel()),
                 [&](std::int64_t i, void* scratch) {
                   const std::span row(static_cast<Wide<T>*>(scratch), static_cast<std::size_t>(n));
                   std::transform(from + i * n, from + (i + 1) * n, row.begin(), widen<T>);
                   const auto most = max_of(row);
                   if (most == -INFINITY) return;  // every key is masked
                   Wide<T> sum = 0;
                   for (const auto x : row) sum += std::exp(x - most);
                   to[i] = narrow<T>(most + std::log(sum));
                 });
  });
  return out;
}

}  // namespace attn::reference
