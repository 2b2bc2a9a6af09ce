// Dense products for the projections: an element's sum runs over the depth in order, so that it does not depend on
// the other rows, the other columns, or the threads. For any Core that multiplies, which has b packed into panels of
// kColumns columns and offers
//   kHeight, task_panels(p)              rows and panels of a task
//   depth(p)                             depth that it takes at once: a block
//   kDeep, deep_height(p), kDeepPanels   of a product of more blocks than kDeep: at most
//   kLineBytes, panel_bytes(p, depth)    of a packed panel: of each depth, in its first part, and of all parts
//   pack(p, panel, first, depth, to)     a part of a panel, from a multiple of kPackDepth on
//   load_rows(row, rows, first, depth)   of a: a task's, in a block
//   kStrip                               rows that it multiplies at once
//   multiply(panel, first, depth, strip, rows, sums, writer)
//                                        sums (rows, kColumns) of a block and of the loaded rows from `strip` on: anew
//                                        for the first, else added; what `writer` has left is written meanwhile
#pragma once

#include "kernels/product.hpp"
#include "kernels/unit/carver.hpp"
#include "kernels/unit/panel_writer.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

inline std::int64_t panels(const Product& p) { return ceil_div(p.n, kColumns); }

// A packed panel, or the rest of it from a line on; `depth` is the whole panel's, behind which its next part lies.
struct Panel {
  void* data;
  std::int64_t depth;
};

// What a product's operands are together: the widest of the two.
inline Element operands(const Product& p) {
  if (p.a_element == Element::f16 || p.b_element == Element::f16) return Element::f16;
  return p.a_element == Element::f32 ? p.a_element : p.b_element;
}

// What a task computes at most: rows, and panels of columns.
struct TaskSize {
  std::int64_t rows, panels;
};

inline std::int64_t count_tasks(const Product& p, const TaskSize& size) {
  return ceil_div(p.m, size.rows) * ceil_div(panels(p), size.panels);
}

template <class Core>
inline bool is_deep(const Product& p) {
  return p.k > Core::kDeep * Core::depth(p);
}

// A wide task reads a less often; but there shall be 32 tasks for the threads to share, where that can be. A deep
// product's panels do not stay in L2 from task to task: it is cut into fewer and higher ones, which read them less
// often.
template <class Core>
inline TaskSize task_size(const Product& p) {
  TaskSize size{Core::kHeight, Core::task_panels(p)};
  if (is_deep<Core>(p)) {
    size.panels = Core::kDeepPanels;
    while (2 * size.rows <= Core::deep_height(p) && count_tasks(p, {2 * size.rows, size.panels}) >= 6) size.rows *= 2;
  }
  while (size.panels > 8 && count_tasks(p, size) < 16 && size.rows == Core::kHeight) size.panels /= 2;
  return size;
}

template <class Core>
inline std::int64_t product_tasks(const Product& p) {
  return count_tasks(p, task_size<Core>(p));
}

// Whether tasks pack what they need of b, a block at a time: where it is needed once or twice, and deep.
template <class Core>
inline bool packs_in_tasks(const Product& p) {
  return is_deep<Core>(p) && p.m <= 2 * task_size<Core>(p).rows;
}

// Packed panels behind each other, each of `depth`.
template <class Core>
struct Panels {
  const Product& p;
  char* data;
  std::int64_t depth;

  Panel at(std::int64_t panel, std::int64_t line) const {
    return {data + panel * Core::panel_bytes(p, depth) + line * Core::kLineBytes, depth};
  }
};

// b is packed in runs along its lines in memory: of a panel, where those are columns, else of kPackDepth.
constexpr std::int64_t kPackDepth = 64;

template <class Core>
inline std::size_t packed_bytes(const Product& p) {
  return packs_in_tasks<Core>(p) ? 0 : static_cast<std::size_t>(panels(p) * Core::panel_bytes(p, p.k));
}

template <class Core>
inline std::int64_t pack_tasks(const Product& p) {
  if (packs_in_tasks<Core>(p)) return 0;
  return p.b_depth == 1 ? panels(p) : ceil_div(p.k, kPackDepth);
}

template <class Core>
inline void run_pack(const Product& p, void* packed, std::int64_t task) {
  const Panels<Core> to{p, static_cast<char*>(packed), p.k};
  if (p.b_depth == 1) return Core::pack(p, task, 0, p.k, to.at(task, 0));
  const std::int64_t first = task * kPackDepth, depth = p.k - first < kPackDepth ? p.k - first : kPackDepth;
  for (std::int64_t panel = 0; panel < panels(p); ++panel) Core::pack(p, panel, first, depth, to.at(panel, first));
}

// A block of the panels from `begin` to `end`.
template <class Core>
inline void pack_block(const Panels<Core>& to, std::int64_t begin, std::int64_t end, std::int64_t first,
                       std::int64_t depth) {
  for (std::int64_t line = 0; line < depth; line += kPackDepth) {
    const std::int64_t lines = depth - line < kPackDepth ? depth - line : kPackDepth;
    for (std::int64_t i = begin; i < end; ++i) Core::pack(to.p, i, first + line, lines, to.at(i - begin, line));
  }
}

// A task's operands, and its sums by panel: (rows of a task, kColumns).
template <class Core>
struct ProductScratch {
  TaskSize size;
  Core core;
  float* sums;
  Panels<Core> own;  // where tasks pack b

  ProductScratch(const Product& p, Carver& take)
      : size(task_size<Core>(p)),
        core(p, size.rows, take),
        sums(take((size.rows * size.panels + Core::kStrip) * kColumns)),
        own{p, nullptr, Core::depth(p)} {
    const std::int64_t bytes = packs_in_tasks<Core>(p) ? size.panels * Core::panel_bytes(p, own.depth) : 0;
    own.data = reinterpret_cast<char*>(take(bytes / 4));
  }
};

template <class Core>
inline std::size_t product_scratch(const Product& p) {
  Carver count{nullptr};
  const ProductScratch<Core> parts(p, count);
  return static_cast<std::size_t>(count.used) * sizeof(float);
}

// Tasks that share panels follow each other, so that these stay in L2.
template <class Core>
inline bool run_product(const Product& p, const void* packed, std::int64_t task, void* scratch) {
  Carver carver{static_cast<float*>(scratch)};
  ProductScratch<Core> mem(p, carver);
  const std::int64_t down = ceil_div(p.m, mem.size.rows);
  const std::int64_t row = task % down * mem.size.rows, begin = task / down * mem.size.panels;
  const std::int64_t rows = p.m - row < mem.size.rows ? p.m - row : mem.size.rows;
  const std::int64_t end = begin + mem.size.panels < panels(p) ? begin + mem.size.panels : panels(p);
  const std::int64_t block = Core::depth(p);
  const bool whole = p.k <= block;  // sums of two strips will do, in turns
  const bool packs = packs_in_tasks<Core>(p);
  const Panels<Core> all{p, static_cast<char*>(const_cast<void*>(packed)), p.k};
  std::int64_t turn = 0;
  PanelWriter writer(p);
  for (std::int64_t first = 0; first < p.k; first += block) {
    const bool last = p.k - first <= block;
    const std::int64_t depth = last ? p.k - first : block;
    mem.core.load_rows(row, rows, first, depth);
    if (packs) pack_block(mem.own, begin, end, first, depth);
    for (std::int64_t strip = 0; strip < rows; strip += Core::kStrip) {
      const std::int64_t high = rows - strip < Core::kStrip ? rows - strip : Core::kStrip;
      for (std::int64_t i = begin; i < end; ++i) {
        float* sums = mem.sums + (whole ? turn : (i - begin) * mem.size.rows + strip) * kColumns;
        turn = Core::kStrip - turn;
        const Panel panel = packs ? mem.own.at(i - begin, 0) : all.at(i, first);
        mem.core.multiply(panel, first, depth, strip, high, sums, writer);
        if (last) writer.begin(row + strip, high, i * kColumns, sums);
      }
    }
  }
  writer.write(rows);
  return writer.fits();
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
