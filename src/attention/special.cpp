#include "attention/special.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/rows.hpp"
#include "reference/loops.hpp"

namespace attn {
namespace {

// The bits of a number but its sign, which are in the magnitudes' order; of NaN they are above infinity's. Compilers
// find the largest of such a vector at a time.
template <class T>
auto magnitude(T x) {
  if constexpr (is_half<T>) {
    return static_cast<std::int16_t>(x.bits & 0x7fff);
  } else {
    using Bits = std::conditional_t<std::is_same_v<T, double>, std::int64_t, std::int32_t>;
    return std::bit_cast<Bits>(x) & std::numeric_limits<Bits>::max();
  }
}

}  // namespace

bool is_finite(const void* row, DType dtype, std::int64_t width, float least) {
  bool finite = true;
  reference::visit_floating("attention", dtype, [&](auto zero) {
    using T = decltype(zero);
    decltype(magnitude(zero)) largest = 0;
    for (std::int64_t c = 0; c < width; ++c) largest = std::max(largest, magnitude(static_cast<const T*>(row)[c]));
    finite = largest < magnitude(T(least));
  });
  return finite;
}

std::vector<std::vector<std::int64_t>> special_tokens(const Tensor& t, float least) {
  const std::int64_t heads = t.size(1), tokens = t.size(2);
  const Tensor rows = t.stride(3) == 1 ? t : t.contiguous();
  std::vector<std::vector<std::int64_t>> all(static_cast<std::size_t>(rows.size(0) * heads));
  for_runs(
      rows.size(0) * heads, static_cast<double>(tokens * rows.size(3)),
      [&](std::int64_t head, std::int64_t) {
        for (std::int64_t i = 0; i < tokens; ++i) {
          if (!is_finite(row_at(rows, head / heads, head % heads, i), rows.dtype(), rows.size(3), least))
            all[static_cast<std::size_t>(head)].push_back(i);
        }
      },
      1);
  return all;
}

Tensor without_specials(const Tensor& rows, float least) {
  const Tensor copy = rows.to(DType::f32).contiguous(), clean = copy.raw() == rows.raw() ? copy.clone() : copy;
  float* numbers = clean.data<float>();
  for_runs(clean.numel(), 1, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) numbers[i] = std::fabs(numbers[i]) < least ? numbers[i] : 0;
  });
  return clean;
}

void store_saturated(std::span<const float> row, void* to, DType dtype) {
  reference::visit_floating("attention", dtype, [&](auto zero) {
    using T = decltype(zero);
    std::transform(row.begin(), row.end(), static_cast<T*>(to),
                   [](float x) { return reference::narrow<T>(static_cast<reference::Wide<T>>(x)); });
  });
}

}  // namespace attn
