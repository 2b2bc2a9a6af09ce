// Dense products for the projections: an element's sum runs over the depth in order, so that it does not depend on
// the other rows, the other columns, or the threads. For any Core that multiplies, which has b packed into panels of
// kColumns columns and offers
//   kHeight, kPanels                     rows and panels of a task, at most
//   kDepth                               depth that it takes at once: a block
//   packed_bytes(p), pack_panel(p, packed, panel)
//   load_rows(row, rows, first, depth)   of a: a task's, in a block
//   multiply(packed, panel, first, depth, rows, sums)
//                                        sums (rows, kColumns) of a block: anew for the first, else added
#pragma once

#include "kernels/product.hpp"
#include "kernels/unit/carver.hpp"
#include "kernels/unit/elements.hpp"
#include "kernels/unit/tile.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

inline std::int64_t panels(const Product& p) { return ceil_div(p.n, kColumns); }

inline const void* element_at(const void* data, Element element, std::int64_t at) {
  return static_cast<const char*>(data) + at * element_bytes(element);
}

// What a product's operands are together: the widest of the two.
inline Element operands(const Product& p) {
  if (p.a_element == Element::f16 || p.b_element == Element::f16) return Element::f16;
  return p.a_element == Element::f32 ? p.a_element : p.b_element;
}

// From here on a float is stored as infinity.
inline float end_of_range(Element element) {
  if (element == Element::f32) return __builtin_inff();
  return element == Element::bf16 ? 0x1.ffp127f : 65520.f;
}

inline __attribute__((always_inline)) Vec load_columns(const float* from, std::int64_t count) {
  if (count >= kLanes) return load(from);
  float lane[kLanes] = {};
  for (std::int64_t i = 0; i < count; ++i) lane[i] = from[i];
  return load(lane);
}

// c (rows, columns of a panel) = sums + bias + more. False when one of them leaves the element's range.
template <Element element>
inline bool write_rows(const Product& p, std::int64_t row, std::int64_t rows, std::int64_t column, const float* sums) {
  const std::int64_t columns = p.n - column < kColumns ? p.n - column : kColumns;
  const Vec end = splat(end_of_range(element));
  Vec bias[kWidth] = {};
  for (int w = 0; p.bias && w < kWidth; ++w) bias[w] = load_columns(p.bias + column + w * kLanes, columns - w * kLanes);
  VecI outside{};
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t at = (row + i) * p.c_row + column;
    float line[kColumns];
    ATTN_UNROLL for (int w = 0; w < kWidth; ++w) {
      Vec x = load(sums + i * kColumns + w * kLanes) + bias[w];
      if (p.more) x += load_columns(p.more + at + w * kLanes, columns - w * kLanes);
      outside |= ~((x < end) & (x > -end));  // NaN, too
      store(line + w * kLanes, x);
    }
    void* out = static_cast<char*>(p.c) + at * element_bytes(element);
    columns == kColumns ? narrow(element, line, out, kColumns) : narrow(element, line, out, columns);
  }
  return !any(outside);
}

inline bool write_panel(const Product& p, std::int64_t row, std::int64_t rows, std::int64_t column, const float* sums) {
  if (p.c_element == Element::f32) return write_rows<Element::f32>(p, row, rows, column, sums);
  if (p.c_element == Element::bf16) return write_rows<Element::bf16>(p, row, rows, column, sums);
  return write_rows<Element::f16>(p, row, rows, column, sums);
}

// A wide task reads a less often; but there shall be 32 tasks for the threads to share, where that can be.
template <class Core>
inline std::int64_t task_panels(const Product& p) {
  std::int64_t wide = Core::kPanels;
  while (wide > 8 && ceil_div(p.m, Core::kHeight) * ceil_div(panels(p), wide) < 16) wide /= 2;
  return wide;
}

template <class Core>
inline std::int64_t product_tasks(const Product& p) {
  return ceil_div(p.m, Core::kHeight) * ceil_div(panels(p), task_panels<Core>(p));
}

// A task's operands, and its sums by panel: (kHeight, kColumns).
template <class Core>
struct ProductScratch {
  Core core;
  float* sums;

  ProductScratch(const Product& p, Carver& take)
      : core(p, take), sums(take(Core::kHeight * Core::kPanels * kColumns)) {}
};

template <class Core>
inline std::size_t product_scratch(const Product& p) {
  Carver count{nullptr};
  const ProductScratch<Core> parts(p, count);
  return static_cast<std::size_t>(count.used) * sizeof(float);
}

template <class Core>
inline bool run_product(const Product& p, const void* packed, std::int64_t task, void* scratch) {
  Carver carver{static_cast<float*>(scratch)};
  ProductScratch<Core> mem(p, carver);
  const std::int64_t wide = task_panels<Core>(p), across = ceil_div(panels(p), wide);
  const std::int64_t row = task / across * Core::kHeight, begin = task % across * wide;
  const std::int64_t rows = p.m - row < Core::kHeight ? p.m - row : Core::kHeight;
  const std::int64_t end = begin + wide < panels(p) ? begin + wide : panels(p);
  bool fits = true;
  for (std::int64_t first = 0; first < p.k; first += Core::kDepth) {
    const bool last = p.k - first <= Core::kDepth;
    const std::int64_t depth = last ? p.k - first : Core::kDepth;
    mem.core.load_rows(row, rows, first, depth);
    for (std::int64_t i = begin; i < end; ++i) {
      float* sums = mem.sums + (i - begin) * Core::kHeight * kColumns;
      mem.core.multiply(packed, i, first, depth, rows, sums);
      if (last) fits &= write_panel(p, row, rows, i * kColumns, sums);
    }
  }
  return fits;
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
