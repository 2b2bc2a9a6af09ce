#include "attention/special.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>

#include "core/rows.hpp"
#include "reference/loops.hpp"

namespace attn {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

bool has_column(const Columns& columns, std::int64_t c) {
  return columns[static_cast<std::size_t>(c / 64)] >> (c % 64) & 1;
}

void add(Columns& columns, std::int64_t c) {
  columns[static_cast<std::size_t>(c / 64)] |= std::uint64_t{1} << (c % 64);
}

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

template <class T>
bool all_finite(const T* row, std::int64_t step, std::int64_t width) {
  decltype(magnitude(T{})) largest = 0;
  if (step == 1) {
    for (std::int64_t c = 0; c < width; ++c) largest = std::max(largest, magnitude(row[c]));
  } else {
    for (std::int64_t c = 0; c < width; ++c) largest = std::max(largest, magnitude(row[c * step]));
  }
  return largest < magnitude(T(kInf));
}

}  // namespace

void Specials::Head::look_at(const Tensor& rows, std::int64_t first, std::int64_t count) {
  const std::int64_t width = rows.size(1), step = rows.stride(1);
  reference::visit_floating("attention", rows.dtype(), [&](auto zero) {
    for (std::int64_t token = first; token < first + count; ++token) {
      const auto* row = rows.data<decltype(zero)>() + token * rows.stride(0);
      if (all_finite(row, step, width)) continue;
      SpecialRow special{token, Columns(static_cast<std::size_t>((width + 63) / 64)), {}};
      special.below = special.above;
      for (std::int64_t c = 0; c < width; ++c) {
        const double x = to_double(row[c * step]);
        if (!std::isfinite(x) && !(x < 0)) add(special.above, c);
        if (!std::isfinite(x) && !(x > 0)) add(special.below, c);
        nan = nan || std::isnan(x);
      }
      special_rows.push_back(std::move(special));
    }
  });
}

Specials::Specials(const Tensor& rows, const Heads& heads)
    : per_item_(rows.size(1)), heads_(static_cast<std::size_t>(rows.size(0) * rows.size(1))) {
  constexpr std::int64_t kRun = 256;
  const std::int64_t runs = (rows.size(2) + kRun - 1) / kRun;
  std::vector<Head> parts(heads_.size() * static_cast<std::size_t>(runs));
  for_runs(
      static_cast<std::int64_t>(parts.size()), static_cast<double>(kRun * rows.size(3)),
      [&](std::int64_t at, std::int64_t) {
        const std::int64_t head = at / runs, first = at % runs * kRun;
        if (!has(heads, head)) return;
        parts[static_cast<std::size_t>(at)].look_at(rows.select(0, head / per_item_).select(0, head % per_item_), first,
                                                    std::min(kRun, rows.size(2) - first));
      },
      1);
  for (std::size_t at = 0; at < parts.size(); ++at) {
    Head& part = parts[at];
    auto& all = heads_[at / static_cast<std::size_t>(runs)].special_rows;
    std::move(part.special_rows.begin(), part.special_rows.end(), std::back_inserter(all));
    any_ = any_ || !all.empty(), nan_ = nan_ || part.nan;
  }
}

bool sees(const kernels::Problem& p, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  if (j < p.first[i] || j >= p.last[i]) return false;
  const auto cell = [&](const auto& grid, std::int64_t row, std::int64_t column) {
    return grid.data[b * grid.batch + h * grid.head + row * grid.query + column * grid.key];
  };
  if (p.keep.data && !cell(p.keep, i, j)) return false;
  if (p.bias.data && cell(p.bias, i, j) == -kInf) return false;
  if (p.distances.data) {
    const std::int64_t behind = std::clamp(p.centre[i] - j, p.distances.low, p.distances.high);
    if (p.distances.data[h * p.distances.head + behind] == -kInf) return false;
  }
  return !p.blocks.keep.data ||
         cell(p.blocks.keep, (p.blocks.query_start + i) / p.blocks.query, (p.blocks.key_start + j) / p.blocks.key);
}

bool hides_cells(const kernels::Problem& p) {
  return p.keep.data || p.bias.data || p.distances.data || p.blocks.keep.data;
}

bool sees_any(const kernels::Problem& p, std::int64_t b, std::int64_t h, std::int64_t i) {
  if (p.sinks && p.sinks[h] != -kInf) return true;
  for (std::int64_t j = p.first[i]; j < p.last[i]; ++j) {
    if (sees(p, b, h, i, j)) return true;
  }
  return false;
}

Tensor without_specials(const Tensor& rows, float large, const Heads& heads) {
  const Tensor copy = Tensor::empty(rows.shape());
  const std::int64_t h = rows.size(1), t = rows.size(2), width = rows.size(3), step = rows.stride(3);
  const auto clean = [large](float x) { return std::isnan(x) ? 0 : x == kInf ? large : x == -kInf ? -large : x; };
  for_runs(
      rows.size(0) * h * t, static_cast<double>(width),
      [&](std::int64_t first, std::int64_t count) {
        reference::visit_floating("attention", rows.dtype(), [&](auto zero) {
          for (std::int64_t at = first; at < first + count; ++at) {
            if (!has(heads, at / t)) continue;
            const auto* from = rows.data<decltype(zero)>() + at / t / h * rows.stride(0) + at / t % h * rows.stride(1) +
                               at % t * rows.stride(2);
            float* to = copy.data<float>() + at * width;
            for (std::int64_t c = 0; c < width; ++c) to[c] = clean(static_cast<float>(from[c * step]));
          }
        });
      },
      256);
  return copy;
}

bool is_finite(const void* row, DType dtype, std::int64_t width) {
  bool finite = true;
  reference::visit_floating("attention", dtype,
                            [&](auto zero) { finite = all_finite(static_cast<const decltype(zero)*>(row), 1, width); });
  return finite;
}

void put_specials(std::span<float> row, const Columns& above, const Columns& below) {
  for (std::int64_t c = 0; c < static_cast<std::int64_t>(row.size()); ++c) {
    const bool up = has_column(above, c), down = has_column(below, c);
    float& x = row[static_cast<std::size_t>(c)];
    if (up || down) x = std::isnan(x) || (up && down) ? std::nanf("") : up ? kInf : -kInf;
  }
}

void store_saturated(std::span<const float> row, void* to, DType dtype) {
  reference::visit_floating("attention", dtype, [&](auto zero) {
    using T = decltype(zero);
    std::transform(row.begin(), row.end(), static_cast<T*>(to),
                   [](float x) { return reference::narrow<T>(static_cast<reference::Wide<T>>(x)); });
  });
}

}  // namespace attn
