// Dense products for the projections: an element's sum runs over the depth in order, so that it does not depend on
// the other rows, the other columns, or the threads. For any Core that multiplies, which has b packed into panels of
// kColumns columns and offers
//   kHeight, kPanels                     rows and panels of a task
//   kDepth                               depth that it takes at once: a block
//   kDeep, kDeepHeight, kDeepPanels      of a product deeper than kDeep: at most
//   packed_bytes(p), pack(p, packed, panel, first, depth)
//                                        a block of a panel, from a multiple of kPackDepth on
//   load_rows(row, rows, first, depth)   of a: a task's, in a block
//   kStrip                               rows that it multiplies at once
//   multiply(packed, panel, first, depth, strip, rows, sums, writer)
//                                        sums (rows, kColumns) of a block and of the loaded rows from `strip` on: anew
//                                        for the first, else added; what `writer` has left is written meanwhile
#pragma once

#include "kernels/product.hpp"
#include "kernels/unit/carver.hpp"
#include "kernels/unit/elements.hpp"
#include "kernels/unit/tile.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

inline std::int64_t panels(const Product& p) { return ceil_div(p.n, kColumns); }

// b is packed in tasks along its lines in memory: a panel, where those are columns, or a run of depth.
constexpr std::int64_t kPackDepth = 64;

inline std::int64_t pack_tasks(const Product& p) { return p.b_depth == 1 ? panels(p) : ceil_div(p.k, kPackDepth); }

template <class Core>
inline void run_pack(const Product& p, void* packed, std::int64_t task) {
  if (p.b_depth == 1) return Core::pack(p, packed, task, 0, p.k);
  const std::int64_t first = task * kPackDepth, depth = p.k - first < kPackDepth ? p.k - first : kPackDepth;
  for (std::int64_t panel = 0; panel < panels(p); ++panel) Core::pack(p, packed, panel, first, depth);
}

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

// A vector of results at its place.
template <Element element>
inline __attribute__((always_inline)) void store_result(void* out, Vec x, std::int64_t count) {
  if (element == Element::f32 && count >= kLanes) return store(static_cast<float*>(out), x);
  if (element == Element::bf16 && count >= kLanes) return store_bf16(static_cast<std::uint16_t*>(out), x);
  float lane[kLanes];
  store(lane, x);
  narrow(element, lane, out, count < kLanes ? count : kLanes);
}

// Writes a panel's results, sums + bias + more, some rows at a time: beside the products of the next panel.
class PanelWriter {
 public:
  explicit PanelWriter(const Product& p) : p_(p) {}

  void begin(std::int64_t row, std::int64_t rows, std::int64_t column, const float* sums) {
    row_ = row, left_ = rows, column_ = column, sums_ = sums;
  }

  std::int64_t left() const { return left_; }  // rows

  void write(std::int64_t rows) {
    rows = rows < left_ ? rows : left_;
    if (rows <= 0) return;
    const bool whole = p_.n - column_ >= kColumns;
    if (p_.c_element == Element::bf16) {
      whole ? write_rows<Element::bf16, true>(rows) : write_rows<Element::bf16, false>(rows);
    } else if (p_.c_element == Element::f32) {
      whole ? write_rows<Element::f32, true>(rows) : write_rows<Element::f32, false>(rows);
    } else {
      write_rows<Element::f16, false>(rows);
    }
    row_ += rows, left_ -= rows, sums_ += rows * kColumns;
  }

  // Whether all that was written is in the range of its element.
  bool fits() const {
    const float end = end_of_range(p_.c_element);
    std::uint32_t largest = 0;
    for (int i = 0; i < kLanes; ++i) largest = largest_[i] > largest ? largest_[i] : largest;
    return largest < float_to_bits(end);
  }

 private:
  template <Element element, bool Whole>
  void write_rows(std::int64_t rows) {
    const std::int64_t columns = Whole ? kColumns : p_.n - column_;
    Vec bias[kWidth] = {};
    for (int w = 0; p_.bias && w < kWidth; ++w) {
      bias[w] = load_columns(p_.bias + column_ + w * kLanes, columns - w * kLanes);
    }
    const float* more = p_.more;
    VecU largest = largest_;
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t at = (row_ + i) * p_.c_row + column_;
      ATTN_UNROLL for (int w = 0; w < kWidth; ++w) {
        const std::int64_t from = at + w * kLanes, count = columns - w * kLanes;
        Vec x = load(sums_ + i * kColumns + w * kLanes) + bias[w];
        if (more) x += load_columns(more + from, count);
        const VecU magnitude = reinterpret_cast<VecU>(x) & 0x7fffffffu;  // NaN's is above all numbers'
        largest = magnitude > largest ? magnitude : largest;
        if (count > 0) store_result<element>(static_cast<char*>(p_.c) + from * element_bytes(element), x, count);
      }
    }
    largest_ = largest;
  }

  const Product& p_;
  std::int64_t row_ = 0, left_ = 0, column_ = 0;
  const float* sums_ = nullptr;
  VecU largest_{};
};

// What a task computes at most: rows, and panels of columns.
struct TaskSize {
  std::int64_t rows, panels;
};

inline std::int64_t count_tasks(const Product& p, const TaskSize& size) {
  return ceil_div(p.m, size.rows) * ceil_div(panels(p), size.panels);
}

// A wide task reads a less often; but there shall be 32 tasks for the threads to share, where that can be. A deep
// product's panels do not stay in L2 from task to task: it is cut into fewer and higher ones, which read them less
// often.
template <class Core>
inline TaskSize task_size(const Product& p) {
  TaskSize size{Core::kHeight, Core::kPanels};
  if (p.k > Core::kDeep) {
    size.panels = Core::kDeepPanels;
    while (2 * size.rows <= Core::kDeepHeight && count_tasks(p, {2 * size.rows, size.panels}) >= 6) size.rows *= 2;
  }
  while (size.panels > 8 && count_tasks(p, size) < 16 && size.rows == Core::kHeight) size.panels /= 2;
  return size;
}

template <class Core>
inline std::int64_t product_tasks(const Product& p) {
  return count_tasks(p, task_size<Core>(p));
}

// A task's operands, and its sums by panel: (rows of a task, kColumns).
template <class Core>
struct ProductScratch {
  TaskSize size;
  Core core;
  float* sums;

  ProductScratch(const Product& p, Carver& take)
      : size(task_size<Core>(p)),
        core(p, size.rows, take),
        sums(take((size.rows * size.panels + Core::kStrip) * kColumns)) {}
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
  const std::int64_t across = ceil_div(panels(p), mem.size.panels);
  const std::int64_t row = task / across * mem.size.rows, begin = task % across * mem.size.panels;
  const std::int64_t rows = p.m - row < mem.size.rows ? p.m - row : mem.size.rows;
  const std::int64_t end = begin + mem.size.panels < panels(p) ? begin + mem.size.panels : panels(p);
  const bool whole = p.k <= Core::kDepth;  // sums of two strips will do, in turns
  std::int64_t turn = 0;
  PanelWriter writer(p);
  for (std::int64_t first = 0; first < p.k; first += Core::kDepth) {
    const bool last = p.k - first <= Core::kDepth;
    const std::int64_t depth = last ? p.k - first : Core::kDepth;
    mem.core.load_rows(row, rows, first, depth);
    for (std::int64_t strip = 0; strip < rows; strip += Core::kStrip) {
      const std::int64_t high = rows - strip < Core::kStrip ? rows - strip : Core::kStrip;
      for (std::int64_t i = begin; i < end; ++i) {
        float* sums = mem.sums + (whole ? turn : (i - begin) * mem.size.rows + strip) * kColumns;
        turn = Core::kStrip - turn;
        mem.core.multiply(packed, i, first, depth, strip, high, sums, writer);
        if (last) writer.begin(row + strip, high, i * kColumns, sums);
      }
    }
  }
  writer.write(rows);
  return writer.fits();
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
