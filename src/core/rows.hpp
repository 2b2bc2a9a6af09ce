// Loops over a tensor's rows and elements, cut into tasks by the sizes alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attn/tensor.hpp"
#include "core/parallel.hpp"

namespace attn {

// f(first, count) on runs of n elements.
template <class F>
void for_runs(std::int64_t n, double operations_each, const F& f, std::int64_t run = 16384) {
  parallel_for((n + run - 1) / run, 0, operations_each * static_cast<double>(n),
               [&](std::int64_t task, void*) { f(task * run, std::min(run, n - task * run)); });
}

// Where element `index` of a contiguous tensor is.
inline void* address(const Tensor& t, std::int64_t index) {
  return static_cast<std::byte*>(t.raw()) + index * static_cast<std::int64_t>(size_of(t.dtype()));
}

// Rows of x's last dimension: how many.
inline std::int64_t row_count(const Tensor& x) { return x.size(-1) == 0 ? 0 : x.numel() / x.size(-1); }

// to += from, both float32, contiguous, of one size; a finite sum past float32's range becomes its largest value.
void add_in_place(const Tensor& to, const Tensor& from);
void scale_in_place(const Tensor& x, double factor);

// Throws Error (dtype) unless x is float32.
void require_float32(const char* op, const char* what, const Tensor& x);

// Checks what a norm of rows takes: x (…, width) in float32, for a result in float32 or bfloat16; and a gradient of x's
// shape, with that of a residual path beside it or none. Throws Error (dtype, shape).
void require_norm_input(const char* op, const Tensor& x, std::int64_t width, DType result);
void require_norm_gradient(const char* op, const Tensor& x, const Tensor& dy, const Tensor& residual);

}  // namespace attn
