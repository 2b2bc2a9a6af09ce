// softmax: scores become weights that sum to 1.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "attn/reference.hpp"
#include "core/processors.hpp"
#include "reference/elementwise.hpp"

namespace attn::reference {
namespace {

template <class Row>
auto sum_of(const Row& row) {
  std::decay_t<decltype(row[0])> sum = 0;
  for (const auto x : row) sum += x;
  return sum;
}

// The largest score, NaN if there is one. Of several at once, since each comparison waits for the one before.
template <class W>
ATTN_FOR_EACH_PROCESSOR W max_of(std::span<const W> row) {
  constexpr std::size_t together = 16;
  const auto larger = [](W x, W most) { return x > most || x != x ? x : most; };
  std::array<W, together> most;
  most.fill(row[0]);
  std::size_t j = 0;
  for (; j + together <= row.size(); j += together) {
    for (std::size_t l = 0; l < together; ++l) most[l] = larger(row[j + l], most[l]);
  }
  for (; j < row.size(); ++j) most[0] = larger(row[j], most[0]);
  return std::accumulate(most.begin(), most.end(), most[0], [&](W a, W b) { return larger(b, a); });
}

// Scores become weights; log Σ exp(score). In a row that is masked throughout both follow from the sum, which is 0.
template <class W>
ATTN_FOR_EACH_PROCESSOR W softmax_of(std::span<W> row) {
  const W most = max_of(std::span<const W>(row));
  // Masked keys at a row's end, as a causal mask has them, take part in nothing.
  std::size_t end = row.size();
  while (end > 0 && row[end - 1] == -INFINITY) --end;
  std::fill(row.begin() + static_cast<std::ptrdiff_t>(end), row.end(), W{0});
  const std::span<W> seen = row.first(end);
  constexpr int masked = -1;  // which no exponential is
  for (W& x : seen) x = x == -INFINITY ? masked : std::exp(x - most);
  W sum = 0;
  for (const W x : seen) sum += x == masked ? 0 : x;
  for (W& x : seen) {
    const W share = x / sum;
    x = x == masked ? 0 : share;  // in a row of NaN too
  }
  return most + std::log(sum);
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

Tensor softmax(const Tensor& s, Tensor* log_sum_exp) {
  require(s.rank() >= 1, "softmax", "at least one dimension", s.shape().str());
  const Tensor in = s.contiguous(), out = Tensor::empty(s.shape(), s.dtype());
  const Tensor sums = Tensor::full(leading(s.shape(), 1), -INFINITY, s.dtype());
  visit_floating("softmax", s.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* sum = sums.data<T>();
    for_rows<T>(in, out, [&](const auto& row, std::int64_t i) { sum[i] = narrow<T>(softmax_of(row)); });
  });
  if (log_sum_exp) *log_sum_exp = sums;
  return out;
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
  Tensor sums;
  softmax(s, &sums);
  return sums;
}

}  // namespace attn::reference
