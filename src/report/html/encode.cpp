#include "report/html/encode.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attn/steps.hpp"
#include "core/processors.hpp"

namespace attn::report_page {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

std::uint8_t byte_of(double share) {
  constexpr double most = 255;
  return static_cast<std::uint8_t>(std::lround(most * std::clamp(std::isnan(share) ? 0 : share, 0.0, 1.0)));
}

// Effective weights have signs, and are shown by their size; -inf stays what it is.
float size_of(float w) { return w == -INFINITY ? w : std::abs(w); }

// A cell of a map: 0 to 251 on a square-root scale, and codes for what is no number; the page's data.js reads them.
constexpr std::uint8_t kMasked = 252;

std::uint8_t cell_byte(float w, float most) {
  constexpr double levels = 251;
  constexpr std::uint8_t minus_inf = 253, plus_inf = 254, nan = 255;
  if (std::isnan(w)) return nan;
  if (std::isinf(w)) return w < 0 ? minus_inf : plus_inf;
  return static_cast<std::uint8_t>(std::lround(most > 0 && w > 0 ? levels * std::sqrt(w / most) : 0));
}

// Half a level on the square-root scale is this much of a weight.
void add_kept(Comparison& kept, std::uint8_t cell, float w, float most) {
  constexpr double levels = 251, float32 = 0x1p-22;
  const double whole = static_cast<double>(most), exact = static_cast<double>(w);
  const double share = cell / levels, half = 0.5 / levels, root = most > 0 ? std::sqrt(exact / whole) : 0;
  kept.add(whole * share * share, exact,
           whole * half * (2 * root + half) + float32 * whole + std::numeric_limits<float>::min());
}

// A head's cells, and the largest finite weight of each row of them.
struct Pool {
  std::vector<std::uint8_t> cells;
  std::vector<float> most;
  Comparison kept;  // of cells that are one weight
};

// Holds for the rows that become one row of cells, by the column, the largest weight, the largest finite one, and
// whether a weight is kept. A loop over columns has nothing to branch on.
struct PooledRow {
  std::vector<float> largest, finite;
  std::vector<char> kept;
};

ATTN_FOR_EACH_PROCESSOR void add_row(PooledRow& columns, const float* row, const bool* keep) {
  float *largest = columns.largest.data(), *finite = columns.finite.data();
  char* kept = columns.kept.data();
  const std::size_t n = columns.largest.size();
  for (std::size_t j = 0; j < n; ++j) {
    const float w = size_of(row[j]);
    largest[j] = w > largest[j] || w != w ? w : largest[j];  // a NaN stays: nothing is larger
    const float number = w < INFINITY ? w : 0;
    finite[j] = number > finite[j] ? number : finite[j];
  }
  for (std::size_t j = 0; keep != nullptr && j < n; ++j) kept[j] = static_cast<char>(kept[j] | keep[j]);
}

// keep: of each weight, or empty.
Pool pool(std::span<const float> weights, std::span<const bool> keep, std::int64_t queries, std::int64_t keys,
          std::int64_t factor) {
  const auto n = static_cast<std::size_t>(keys), together = static_cast<std::size_t>(factor);
  Pool result;
  for (std::int64_t first = 0; first < queries; first += factor) {
    PooledRow columns{std::vector<float>(n, -INFINITY), std::vector<float>(n), std::vector<char>(n, keep.empty())};
    for (std::int64_t i = first; i < std::min(first + factor, queries); ++i) {
      const auto at = static_cast<std::size_t>(i * keys);
      add_row(columns, weights.data() + at, keep.empty() ? nullptr : keep.data() + at);
    }
    const float most = n == 0 ? 0 : *std::max_element(columns.finite.begin(), columns.finite.end());
    for (std::size_t from = 0; from < n; from += together) {
      float largest = -INFINITY;
      bool kept = false;
      for (std::size_t j = from; j < std::min(from + together, n); ++j) {
        const float w = columns.largest[j];
        if (std::isnan(w) || w > largest) largest = w;
        kept = kept || columns.kept[j] != 0;
      }
      const bool hidden = !kept && largest == 0;  // a masked key that has a weight is shown
      result.cells.push_back(hidden ? kMasked : cell_byte(largest, most));
      if (factor == 1 && !hidden && largest >= 0 && std::isfinite(largest)) {
        add_kept(result.kept, result.cells.back(), largest, most);
      }
    }
    result.most.push_back(most);
  }
  return result;
}

struct Top {
  std::vector<std::uint16_t> index;
  std::vector<float> value;
};

constexpr std::size_t kRun = 64;

ATTN_FOR_EACH_PROCESSOR bool any_above(const float* run, float least) {
  bool any = false;
  for (std::size_t j = 0; j < kRun; ++j) any |= size_of(run[j]) > least;
  return any;
}

// The largest in their order, of equal ones the first; each finds its place among those before it.
void add_top(Top& top, std::span<const float> row, std::size_t count) {
  constexpr std::uint16_t missing = 65535;
  struct Ranked {
    float rank;
    std::uint32_t at;
  };
  std::vector<Ranked> kept;
  kept.reserve(count);
  for (std::uint32_t j = 0; j < row.size(); ++j) {
    const bool skips = j % kRun == 0 && j + kRun <= row.size() && kept.size() == count;
    if (skips && !any_above(row.data() + j, kept.back().rank)) {
      j += kRun - 1;
      continue;
    }
    const float size = size_of(row[j]);
    if (size == 0 || (kept.size() == count && !(size > kept.back().rank))) continue;
    const float rank = std::isnan(size) ? -INFINITY : size;
    if (kept.size() < count) kept.emplace_back();
    std::size_t at = kept.size() - 1;
    for (; at > 0 && kept[at - 1].rank < rank; --at) kept[at] = kept[at - 1];
    kept[at] = {rank, j};
  }
  for (std::size_t i = 0; i < count; ++i) {
    const bool there = i < kept.size() && row[kept[i].at] > 0;
    top.index.push_back(there ? static_cast<std::uint16_t>(kept[i].at) : missing);
    top.value.push_back(there ? row[kept[i].at] : 0);
  }
}

// Bytes of float32 that the exact report holds, and of 8 bits for the vectors of the other.
struct Sizes {
  double exact = 0, vectors = 0, heads = 0, rows = 0;
};

Sizes sizes_of(const Block& block, double layers) {
  Sizes sizes;
  for (const auto& [step, tensor] : block.steps) {
    sizes.exact += 4 * layers * static_cast<double>(tensor.numel());
    if (find_step(step)->kind == StepKind::heads) sizes.vectors += layers * static_cast<double>(tensor.numel());
  }
  sizes.heads = layers * static_cast<double>(block.weights().size(0));
  sizes.rows = sizes.heads * static_cast<double>(block.weights().size(1));
  return sizes;
}

}  // namespace

Plan plan_for(const Block& first, std::int64_t layers) {
  constexpr std::int64_t exact_tokens = 128;
  constexpr double mega = 1 << 20, vector_bytes = 4 * mega, map_bytes = 4 * mega, top_bytes = 2 * mega;
  constexpr double bytes_a_top = 6;  // index and value
  const double exact_bytes = (layers > 1 ? 9 : 32) * mega;
  const Sizes sizes = sizes_of(first, static_cast<double>(layers));
  Plan plan;
  plan.packed = layers > 1 && sizes.exact > mega;
  plan.exact = std::max(first.weights().size(1), first.weights().size(2)) <= exact_tokens && sizes.exact <= exact_bytes;
  plan.vectors = sizes.vectors <= vector_bytes;
  plan.cells = std::clamp(static_cast<std::int64_t>(std::sqrt(map_bytes / std::max(sizes.heads, 1.0))),
                          std::int64_t{32}, plan.cells);
  plan.top = std::clamp(static_cast<std::int64_t>(top_bytes / bytes_a_top / std::max(sizes.rows, 1.0)), std::int64_t{4},
                        plan.top);
  return plan;
}

void exact(Json& json, const Tensor& tensor) {
  json.object().name("shape").shape(tensor.shape()).name("f32").floats(tensor).end();
}

void quantised(Json& json, const Tensor& tensor, Comparison& kept) {
  const auto n = static_cast<std::size_t>(tensor.size(-1)),
             rows = n == 0 ? 0 : static_cast<std::size_t>(tensor.numel()) / n;
  const float* x = tensor.data<float>();
  std::vector<std::uint8_t> bytes;
  std::vector<float> ranges;
  for (std::size_t r = 0; r < rows; ++r, x += n) {
    float low = INFINITY, high = -INFINITY;
    for (std::size_t k = 0; k < n; ++k) {
      if (std::isfinite(x[k])) low = std::min(low, x[k]), high = std::max(high, x[k]);
    }
    if (!(low <= high)) low = high = 0;
    ranges.insert(ranges.end(), {low, high});
    const double span = static_cast<double>(high) - static_cast<double>(low);
    for (std::size_t k = 0; k < n; ++k) {
      const auto value = static_cast<double>(x[k]), from = static_cast<double>(low);
      bytes.push_back(byte_of(span > 0 ? (value - from) / span : 0));
      if (!std::isfinite(x[k])) continue;
      constexpr double levels = 255, float32 = 0x1p-23;
      const auto found = static_cast<float>(from + span * bytes.back() / levels);
      kept.add(static_cast<double>(found), value,
               span / levels / 2 + float32 * (std::abs(from) + span) + std::numeric_limits<float>::min());
    }
  }
  json.object().name("shape").shape(tensor.shape()).name("u8").base64(bytes_of(bytes));
  json.name("ranges").base64(bytes_of(ranges)).end();
}

void pooled(Json& json, const Tensor& weights, const Tensor& keep, const Plan& plan, Comparison& kept) {
  const std::int64_t heads = weights.size(0), queries = weights.size(1), keys = weights.size(2);
  const std::int64_t factor = (std::max(queries, keys) + plan.cells - 1) / plan.cells;
  const auto cells = static_cast<std::size_t>(queries * keys);
  std::vector<Pool> maps(static_cast<std::size_t>(heads));
  std::vector<Top> tops(maps.size());
  for_each(heads, 16 * static_cast<double>(weights.numel()), [&](std::int64_t head) {
    const std::span all(weights.data<float>() + static_cast<std::size_t>(head) * cells, cells);
    const std::span<const bool> seen =
        keep.defined() ? std::span(keep.data<bool>() + static_cast<std::size_t>(head) * cells, cells)
                       : std::span<const bool>();
    maps[static_cast<std::size_t>(head)] = pool(all, seen, queries, keys, factor);
    for (std::int64_t i = 0; i < queries; ++i) {
      const std::span row = all.subspan(static_cast<std::size_t>(i * keys), static_cast<std::size_t>(keys));
      add_top(tops[static_cast<std::size_t>(head)], row, static_cast<std::size_t>(plan.top));
    }
  });
  std::vector<std::uint8_t> bytes;
  std::vector<float> most;
  Top top;
  for (std::size_t head = 0; head < maps.size(); ++head) {
    append(bytes, maps[head].cells), append(most, maps[head].most);
    kept.add(maps[head].kept);
    append(top.index, tops[head].index), append(top.value, tops[head].value);
  }
  json.object().name("shape").shape(weights.shape()).name("pool").number(factor);
  json.name("u8").base64(bytes_of(bytes)).name("most").base64(bytes_of(most)).name("top").number(plan.top);
  json.name("topIndex").base64(bytes_of(top.index)).name("topValue").base64(bytes_of(top.value)).end();
}

}  // namespace attn::report_page
