#include "core/rows.hpp"

#include <limits>
#include <string>

#include "attn/error.hpp"

namespace attn {

void add_in_place(const Tensor& to, const Tensor& from) {
  auto* sum = to.data<float>();
  const auto* more = from.data<float>();
  constexpr float kLargest = std::numeric_limits<float>::max();
  for_runs(to.numel(), 1, [=](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) {
      // Finite in, finite out. `&`, not `&&`: the loop is to be vectorised.
      const float a = sum[i], b = more[i], s = a + b;
      const bool over = (s > kLargest) & (a <= kLargest) & (b <= kLargest);
      const bool under = (s < -kLargest) & (a >= -kLargest) & (b >= -kLargest);
      sum[i] = over ? kLargest : under ? -kLargest : s;
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

}  // namespace attn
