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
double of_magnitude(decltype(magnitude(T{})) bits) {
  if constexpr (is_half<T>) {
    T x;
    x.bits = static_cast<std::uint16_t>(bits);
    return to_double(x);
  } else {
    return static_cast<double>(std::bit_cast<T>(bits));
  }
}

template <class T>
bool all_finite(const T* row, std::int64_t step, std::int64_t width, double& most) {
  decltype(magnitude(T{})) largest = 0;
  if (step == 1) {
    for (std::int64_t c = 0; c < width; ++c) largest = std::max(largest, magnitude(row[c]));
  } else {
    for (std::int64_t c = 0; c < width; ++c) largest = std::max(largest, magnitude(row[c * step]));
  }
  if (largest >= magnitude(T(kInf))) return false;
  most = std::max(most, of_magnitude<T>(largest));
  return true;
}

}  // namespace

void Specials::Head::look_at(const Tensor& rows, std::int64_t first, std::int64_t count) {
  const std::int64_t width = rows.size(1), step = rows.stride(1);
  reference::visit_floating("attention", rows.dtype(), [&](auto zero) {
    for (std::int64_t token = first; token < first + count; ++token) {
      const auto* row = rows.data<decltype(zero)>() + token * rows.stride(0);
      if (all_finite(row, step, width, most)) continue;
      SpecialRow special{token, Columns(static_cast<std::size_t>((width + 63) / 64)), {}};
      special.below = special.above;
      for (std::int64_t c = 0; c < width; ++c) {
        const double x = to_double(row[c * step]);
        if (std::isfinite(x)) most = std::max(most, std::fabs(x));
        if (!std::isfinite(x) && !(x < 0)) add(special.above, c);
        if (!std::isfinite(x) && !(x > 0)) add(special.below, c);
        infinities = infinities || std::isinf(x), nan = nan || std::isnan(x);
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
    infinities_ = infinities_ || part.infinities, nan_ = nan_ || part.nan, most_ = std::max(most_, part.most);
  }
}

bool sees(const kernels::Problem& p, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const std::int64_t place = b * p.interval_batch + i;
  if (j < p.first[place] || j >= p.last[place]) return false;
  const auto cell = [&](const auto& grid, std::int64_t row, std::int64_t column) {
    return grid.data[b * grid.batch + h * grid.head + row * grid.query + column * grid.key];
  };
  if (p.keep.data && !cell(p.keep, i, j)) return false;
  if (p.bias.data && cell(p.bias, i, j) == -kInf) return false;
  if (p.distances.data) {
    const std::int64_t behind = std::clamp(p.centre[place] - j, p.distances.low, p.distances.high);
    if (p.distances.data[h * p.distances.head + behind] == -kInf) return false;
  }
  return !p.blocks.data ||
         cell(p.blocks, (p.block_query_start + i) / p.block_query, (p.block_key_start + j) / p.block_key);
}

bool hides_cells(const kernels::Problem& p) {
  return p.keep.data || p.bias.data || p.distances.data || p.blocks.data;
}

bool sees_any(const kernels::Problem& p, std::int64_t b, std::int64_t h, std::int64_t i) {
  if (p.sinks && p.sinks[h] != -kInf) return true;
  const std::int64_t place = b * p.interval_batch + i;
  for (std::int64_t j = p.first[place]; j < p.last[place]; ++j) {
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
  reference::visit_floating("attention", dtype, [&](auto zero) {
    double most = 0;
    finite = all_finite(static_cast<const decltype(zero)*>(row), 1, width, most);
  });
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

Tensor magnitudes_by_column(const Tensor& rows) {
  const std::int64_t heads = rows.size(0) * rows.size(1), t = rows.size(2), width = rows.size(3);
  const Tensor most = Tensor::zeros({rows.size(0), rows.size(1), width}, DType::f64);
  for_runs(
      heads, static_cast<double>(t * width),
      [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t at = first; at < first + count; ++at) {
          std::vector<float> column(static_cast<std::size_t>(width));
          const float* row = rows.data<float>() + at * t * width;
          for (std::int64_t j = 0; j < t; ++j, row += width) {
            for (std::int64_t c = 0; c < width; ++c)
              column[static_cast<std::size_t>(c)] = std::max(column[static_cast<std::size_t>(c)], std::fabs(row[c]));
          }
          std::copy(column.begin(), column.end(), most.data<double>() + at * width);
        }
      },
      1);
  return most;
}

double largest_finite(const Tensor& x) {
  if (!x.defined()) return 0;
  const Tensor flat = x.to(DType::f64).contiguous();
  double most = 0;
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    const double size = std::fabs(flat.data<double>()[i]);
    if (std::isfinite(size)) most = std::max(most, size);
  }
  return most;
}

Divided divided(const Tensor& q, double factor, double largest_key) {
  Divided by{Tensor::empty(q.shape()), Tensor::empty({q.size(0), q.size(1), q.size(2)}), {}};
  by.lost.resize(static_cast<std::size_t>(by.roots.numel()));
  const Tensor in = q.to(DType::f32).contiguous();
  const std::int64_t d = q.size(3);
  const double end = 0.25 / static_cast<double>(d);  // times the largest float32, d times, stays in range
  const auto largest = [&](const float* row) {
    double most = 0;
    for (std::int64_t c = 0; c < d; ++c) {
      if (std::isfinite(row[c])) most = std::max(most, std::fabs(static_cast<double>(row[c]) * factor));
    }
    return std::min(most, 0x1p1000);
  };
  for_runs(
      by.roots.numel(), static_cast<double>(4 * d),
      [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t at = first; at < first + count; ++at) {
          const float* from = in.data<float>() + at * d;
          float* to = by.q.data<float>() + at * d;
          const double most = largest(from);
          const int half = most > end ? std::min(std::ilogb(most / end) / 2 + 1, 127) : 0;
          by.roots.data<float>()[at] = std::ldexp(1.f, half);
          double lost = 0;
          for (std::int64_t c = 0; c < d; ++c) {
            const double x = std::ldexp(static_cast<double>(from[c]) * factor, -2 * half);
            to[c] = static_cast<float>(std::isfinite(from[c]) ? std::clamp(x, -end, end) : from[c]);
            if (x != 0 && std::fabs(x) < 0x1p-126) lost = std::max(lost, std::fabs(from[c] * factor));
          }
          by.lost[static_cast<std::size_t>(at)] = lost * largest_key * static_cast<double>(d) > 0x1p-30;
        }
      },
      256);
  return by;
}

}  // namespace attn
