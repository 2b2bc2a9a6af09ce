// Steps that take each element, or each row, by itself.
#pragma once

#include <algorithm>

#include "reference/loops.hpp"

namespace attn::reference {

// f(x) of every element, in the wide type.
template <class F>
Tensor map(const char* op, const Tensor& x, F&& f) {
  const Tensor in = x.contiguous();
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  visit_floating(op, x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < in.numel(); ++i) out.data<T>()[i] = narrow<T>(f(widen(in.data<T>()[i])));
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
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      out.data<T>()[i] = narrow<T>(f(widen(a.data<T>()[i]), widen(b.data<T>()[i])));
    }
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
      std::transform(from, from + in.numel(), out.data<To>(), [](auto number) {
        return narrow<To>(static_cast<Wide<To>>(to_double(number)));
      });
    });
  });
  return out;
}

// Where keep is false, `otherwise`; keep is boolean and broadcast to x's shape.
Tensor choose(const char* op, const Tensor& x, const Tensor& keep, double otherwise);

// f(row, n) on each row of x over the last dimension, widened; f changes the row in place.
template <class F>
Tensor map_rows(const char* op, const Tensor& x, F&& f) {
  require(x.rank() >= 1, op, "at least one dimension", x.shape().str());
  Tensor out = x.clone();
  const std::int64_t n = x.size(-1);
  visit_floating(op, x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    std::vector<Wide<T>> row(static_cast<std::size_t>(n));
    for (T* p = out.data<T>(); n != 0 && p != out.data<T>() + out.numel(); p += n) {
      for (std::int64_t j = 0; j < n; ++j) row[static_cast<std::size_t>(j)] = widen(p[j]);
      f(row);
      for (std::int64_t j = 0; j < n; ++j) p[j] = narrow<T>(row[static_cast<std::size_t>(j)]);
    }
  });
  return out;
}

}  // namespace attn::reference
