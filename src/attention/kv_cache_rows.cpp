#include "attention/kv_cache_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "reference/loops.hpp"

namespace attn {
namespace {

using reference::narrow;

template <class To, class From>
void convert_row(const From* in, std::int64_t stride, std::int64_t width, To* out) {
  if constexpr (std::is_same_v<To, From>) {
    if (stride == 1) {
      std::memcpy(out, in, static_cast<std::size_t>(width) * sizeof(To));
      return;
    }
  }
  for (std::int64_t c = 0; c < width; ++c) {
    if constexpr (std::is_same_v<To, float> && !std::is_same_v<From, double>) {
      out[c] = static_cast<float>(in[c * stride]);  // whose range holds the others'
    } else {
      out[c] = narrow<To>(to_double(in[c * stride]));
    }
  }
}

// out[c] · (the returned scale) is row[c]. A scale that is NaN makes all of them so.
float quantise_row(const std::vector<float>& row, std::int8_t* out) {
  float most = 0, zero = 0;  // NaN once an element is not finite
  for (const float x : row) {
    most = std::max(most, std::fabs(x));
    zero += x * 0;
  }
  // The kernels take smaller ones for zero.
  float scale = most == 0 ? 0 : std::max(most / 127, std::numeric_limits<float>::min());
  if (scale * 127 > std::numeric_limits<float>::max()) scale = std::nextafter(scale, 0.f);
  const bool empty = std::isnan(zero) || scale == 0;
  for (std::size_t c = 0; c < row.size(); ++c) {
    const float level = empty ? 0 : row[c] / scale;
    out[c] = static_cast<std::int8_t>(std::clamp(std::nearbyint(level), -127.f, 127.f));
  }
  return std::isnan(zero) ? zero : scale;
}

// Calls f(pointer to the row, head, token) for each row of x (hkv, t, width).
template <class T, class F>
void for_each_row(const Tensor& x, F&& f) {
  T* data = x.data<T>();
  for (std::int64_t h = 0; h < x.size(0); ++h) {
    for (std::int64_t t = 0; t < x.size(1); ++t) f(data + h * x.stride(0) + t * x.stride(1), h, t);
  }
}

}  // namespace

void write_rows(const KVPages& pages, const PagePart& part, DType dtype, std::int64_t item, std::int64_t first,
                const Tensor& x) {
  std::vector<float> wide(dtype == DType::i8 ? static_cast<std::size_t>(part.width) : 0);
  reference::visit_floating("KVCache", x.dtype(), [&](auto source) {
    for_each_row<decltype(source)>(x, [&](auto* in, std::int64_t h, std::int64_t t) {
      void* out = pages.row(part, item, h, first + t);
      if (dtype == DType::i8) {
        convert_row(in, x.stride(2), part.width, wide.data());
        *pages.scale(part, item, h, first + t) = quantise_row(wide, static_cast<std::int8_t*>(out));
        return;
      }
      reference::visit_floating("KVCache", dtype, [&](auto stored) {
        convert_row(in, x.stride(2), part.width, static_cast<decltype(stored)*>(out));
      });
    });
  });
}

void read_rows(const KVPages& pages, const PagePart& part, DType dtype, std::int64_t item, std::int64_t head,
               const Tensor& out) {
  const std::int64_t tokens = out.size(0), step = out.stride(0);
  if (dtype == DType::i8) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto* row = reinterpret_cast<const std::int8_t*>(pages.row(part, item, head, t));
      const float scale = *pages.scale(part, item, head, t);
      float* to = out.data<float>() + t * step;
      for (std::int64_t c = 0; c < part.width; ++c) to[c] = static_cast<float>(row[c]) * scale;
    }
    return;
  }
  reference::visit_floating("KVCache", dtype, [&](auto stored) {
    using Stored = decltype(stored);
    const auto read = [&](auto* first) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        const auto* row = reinterpret_cast<const Stored*>(pages.row(part, item, head, t));
        convert_row(row, 1, part.width, first + t * step);
      }
    };
    if (out.dtype() == dtype) return read(out.data<Stored>());
    read(out.data<float>());
  });
}

void read_rows(const KVPages& pages, const PagePart& part, DType dtype, std::int64_t item, const Tensor& out) {
  for (std::int64_t h = 0; h < out.size(0); ++h) read_rows(pages, part, dtype, item, h, out.select(0, h));
}

}  // namespace attn
