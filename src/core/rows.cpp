#include "core/rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "attn/error.hpp"

namespace attn {

namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

// Finite in, finite out.
float saturated_sum(float a, float b) {
  const float s = a + b;
  if (s > kLargest && a <= kLargest && b <= kLargest) return kLargest;
  if (s < -kLargest && a >= -kLargest && b >= -kLargest) return -kLargest;
  return s;
}

// Nearly always no sum is past the range: that is looked at once for a line of them.
constexpr std::int64_t kLine = 1024;

void add_line(float* sum, const float* more, std::int64_t n) {
  float line[kLine];
  std::int32_t past = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    line[i] = sum[i] + more[i];
    past |= std::abs(line[i]) <= kLargest ? 0 : -1;
  }
  if (past == 0) {
    std::copy_n(line, n, sum);
  } else {
    for (std::int64_t i = 0; i < n; ++i) sum[i] = saturated_sum(sum[i], more[i]);
  }
}

}  // namespace

void add_in_place(const Tensor& to, const Tensor& from) {
  auto* sum = to.data<float>();
  const auto* more = from.data<float>();
  for_runs(to.numel(), 1, [=](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; i += kLine) {
      add_line(sum + i, more + i, std::min(kLine, first + count - i));
    }
  });
}

void scale_in_place(const Tensor& x, double factor) {
  if (factor == 1) return;
  auto* value = x.data<float>();
  const auto by = static_cast<float>(factor);
  for_runs(x.numel(), 1, [=](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) value[i] *= by;
  });
}

void require_float32(const char* op, const char* what, const Tensor& x) {
  if (!x.defined() || x.dtype() != DType::f32) {
    throw Error(Error::Kind::dtype, op, std::string(what) + " of dtype float32",
                x.defined() ? name(x.dtype()) : "no tensor");
  }
}

void require_norm_input(const char* op, const Tensor& x, std::int64_t width, DType result) {
  require_float32(op, "x", x);
  if (x.rank() < 1 || x.size(-1) != width) {
    throw Error(Error::Kind::shape, op, "x (…, " + std::to_string(width) + ")", x.shape().str());
  }
  if (result != DType::f32 && result != DType::bf16) {
    throw Error(Error::Kind::dtype, op, "a result in float32 or bfloat16", name(result));
  }
}

void require_norm_gradient(const char* op, const Tensor& x, const Tensor& dy, const Tensor& residual) {
  for (const Tensor* given : {&dy, &residual}) {
    if (given == &residual && !residual.defined()) continue;
    require_float32(op, "the gradient", *given);
    if (!(given->shape() == x.shape())) {
      throw Error(Error::Kind::shape, op, "a gradient of x's shape " + x.shape().str(), given->shape().str());
    }
  }
}

}  // namespace attn
