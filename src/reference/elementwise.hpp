// Steps that take each element, or each row, by itself.
#pragma once

#include <algorithm>
#include <span>

#include "core/parallel.hpp"
#include "reference/loops.hpp"

namespace attn::reference {

// f(first, last) for runs of [0, n), on all threads.
template <class F>
void in_runs(std::int64_t n, const F& f) {
  constexpr std::int64_t run = 1 << 15;
  parallel_for((n + run - 1) / run, 0, 8 * static_cast<double>(n),
               [&](std::int64_t i, void*) { f(i * run, std::min(n, (i + 1) * run)); });
}

// f(x) of every element, in the wide type.
template <class F>
Tensor map(const char* op, const Tensor& x, F&& f) {
  const Tensor in = x.contiguous();
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  visit_floating(op, x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = in.data<T>();
    T* to = out.data<T>();
    in_runs(in.numel(), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) to[i] = narrow<T>(f(widen(from[i])));
    });
  });
  return out;
}

// f(x, y) of every pair; y is broadcast to x's shape.
template <class F>
Tensor map(const char* op, const Tensor& x, const Tensor& y, F&& f) {
  require_same_dtype(op, x, y);
  const Tensor a = x.contiguous(), b = y.expand(x.shape()).contiguous();
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  visit_floating(op, x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T *xs = a.data<T>(), *ys = b.data<T>();
    T* to = out.data<T>();
    in_runs(a.numel(), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) to[i] = narrow<T>(f(widen(xs[i]), widen(ys[i])));
    });
  });
  return out;
}

// x in another floating dtype; a finite value past its range becomes its largest.
inline Tensor saturate_to(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Tensor in = x.contiguous(), out = Tensor::empty(x.shape(), dtype);
  visit_floating("convert", dtype, [&](auto to_zero) {
    visit_floating("convert", x.dtype(), [&](auto from_zero) {
      using To = decltype(to_zero);
      const auto* from = in.data<decltype(from_zero)>();
      std::transform(from, from + in.numel(), out.data<To>(),
                     [](auto number) { return narrow<To>(static_cast<Wide<To>>(to_double(number))); });
    });
  });
  return out;
}

// Where keep is false, `otherwise`; keep is boolean and broadcast to x's shape.
Tensor choose(const char* op, const Tensor& x, const Tensor& keep, double otherwise);

// f(row, i) on the i-th row of x over the last dimension, widened, which f changes in place; then it is narrowed to
// out's i-th row. Both are contiguous, of type T.
template <class T, class F>
void for_rows(const Tensor& x, const Tensor& out, const F& f) {
  if (x.numel() == 0) return;
  const std::int64_t n = x.size(-1);
  const T* from = x.data<T>();
  T* to = out.data<T>();
  parallel_for(x.numel() / n, static_cast<std::size_t>(n) * sizeof(Wide<T>), 16 * static_cast<double>(x.numel()),
               [&](std::int64_t i, void* scratch) {
                 const std::span row(static_cast<Wide<T>*>(scratch), static_cast<std::size_t>(n));
                 std::transform(from + i * n, from + (i + 1) * n, row.begin(), widen<T>);
                 f(row, i);
                 std::transform(row.begin(), row.end(), to + i * n, narrow<T>);
               });
}

// f(row) on each row of x over the last dimension, widened; f changes the row in place.
template <class F>
Tensor map_rows(const char* op, const Tensor& x, const F& f) {
  require(x.rank() >= 1, op, "at least one dimension", x.shape().str());
  const Tensor in = x.contiguous(), out = Tensor::empty(x.shape(), x.dtype());
  visit_floating(op, x.dtype(),
                 [&](auto zero) { for_rows<decltype(zero)>(in, out, [&](const auto& row, std::int64_t) { f(row); }); });
  return out;
}

}  // namespace attn::reference
