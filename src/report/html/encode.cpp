#include "report/html/encode.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attn/steps.hpp"

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
float size_of(float w) { return std::isinf(w) ? w : std::abs(w); }

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

// keep: of each weight, or empty.
Pool pool(std::span<const float> weights, std::span<const bool> keep, std::int64_t queries, std::int64_t keys,
          std::int64_t factor) {
  const auto columns = static_cast<std::size_t>((keys + factor - 1) / factor);
  Pool result;
  for (std::int64_t first = 0; first < queries; first += factor) {
    std::vector<float> largest(columns, -INFINITY);
    std::vector<char> kept(columns, keep.empty());
    float most = 0;
    for (std::int64_t i = first; i < std::min(first + factor, queries); ++i) {
      auto from = static_cast<std::size_t>(i * keys);
      for (std::size_t to = 0; to < columns; ++to) {
        const auto end = std::min(from + static_cast<std::size_t>(factor), static_cast<std::size_t>((i + 1) * keys));
        for (; from < end; ++from) {
          const float w = size_of(weights[from]);
          if (!keep.empty() && keep[from]) kept[to] = 1;
          if (std::isnan(w) || w > largest[to]) largest[to] = w;  // a NaN stays: nothing is larger
          if (std::isfinite(w)) most = std::max(most, w);
        }
      }
    }
    for (std::size_t to = 0; to < columns; ++to) {
      const bool hidden = kept[to] == 0 && largest[to] == 0;  // a masked key that has a weight is shown
      result.cells.push_back(hidden ? kMasked : cell_byte(largest[to], most));
      if (factor == 1 && !hidden && largest[to] >= 0 && std::isfinite(largest[to])) {
        add_kept(result.kept, result.cells.back(), largest[to], most);
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

void add_top(Top& top, std::span<const float> row, std::int64_t count) {
  constexpr std::uint16_t missing = 65535;
  std::vector<std::uint32_t> order;
  for (std::uint32_t j = 0; j < row.size(); ++j) {
    if (row[j] != 0) order.push_back(j);
  }
  const auto kept = std::min(static_cast<std::size_t>(count), order.size());
  const auto rank = [&](std::uint32_t j) { return std::isnan(row[j]) ? -INFINITY : size_of(row[j]); };
  const auto larger = [&](std::uint32_t a, std::uint32_t b) { return rank(a) != rank(b) ? rank(a) > rank(b) : a < b; };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), larger);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const bool there = i < kept && row[order[i]] > 0;
    top.index.push_back(there ? static_cast<std::uint16_t>(order[i]) : missing);
    top.value.push_back(there ? row[order[i]] : 0);
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
      add_top(tops[static_cast<std::size_t>(head)], row, plan.top);
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
