// Dense products for the projections: an element's sum runs over the depth in order, so that it does not depend on
// the other rows, the other columns, or the threads. For any Core that multiplies, which has b packed into panels of
// kColumns columns and offers
//   kHeight, task_panels(p)              rows and panels of a task
//   depth(p)                             depth that it takes at once: a block
//   kDeep, deep_height(p), kDeepPanels   of a product of more blocks than kDeep: at most
//   kLineBytes, panel_bytes(p, depth)    of a packed panel: of each depth, in its first part, and of all parts
//   pack(p, panel, first, depth, to)     a part of a panel, from a multiple of kPackDepth on
//   packs_ahead(p)                       whether rows of a are loaded beside the products of the block before
//   begin_rows(block, before)            of a, for the next block; null: none is before it
//   take_rows()                          from here on those are multiplied
//   kStrip                               rows that it multiplies at once
//   multiply(panel, block, strip, rows, sums, writer)
//                                        sums (rows, kColumns) of the block's rows from `strip` on: anew for the first
//                                        block, else added; what `writer` has left is written meanwhile
//   finish()                             all sums are in memory, as they are when `writer` is called the next time
#pragma once

#include "kernels/product/panel_writer.hpp"
#include "kernels/product/problem.hpp"
#include "kernels/workspace.hpp"

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

// A block of a task: its rows and panels of c, and the depth that is worked on. Past the last one there are no rows.
struct TaskBlock {
  std::int64_t row, rows, begin, end, first, depth;
};

// A block of its panels.
template <class Core>
inline void pack_block(const Panels<Core>& to, const TaskBlock& block) {
  for (std::int64_t line = 0; line < block.depth; line += kPackDepth) {
    const std::int64_t lines = block.depth - line < kPackDepth ? block.depth - line : kPackDepth;
    for (std::int64_t i = block.begin; i < block.end; ++i) {
      Core::pack(to.p, i, block.first + line, lines, to.at(i - block.begin, line));
    }
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

// A thread's tasks, block by block.
template <class Core>
class ProductRun {
 public:
  ProductRun(const Product& p, const void* packed, void* scratch)
      : p_(p),
        carver_{static_cast<float*>(scratch)},
        mem_(p, carver_),
        all_{p, static_cast<char*>(const_cast<void*>(packed)), p.k},
        writer_(p) {}

  bool run(const TaskSource& tasks) {
    TaskBlock block = begin(tasks, false);
    while (block.rows > 0) {
      mem_.core.take_rows();
      const bool last = block.first + block.depth == p_.k;
      TaskBlock next = last ? TaskBlock{} : at_depth(block, block.first + block.depth);
      if (!last) mem_.core.begin_rows(next, &block);
      if (last && Core::packs_ahead(p_)) next = begin(tasks, true, &block);
      multiply(block, last);
      block = last && next.rows == 0 ? begin(tasks, false) : next;
    }
    return writer_.fits();
  }

 private:
  // The next task's first block; its rows may be loaded beside the products of the block before.
  TaskBlock begin(const TaskSource& tasks, bool early, const TaskBlock* before = nullptr) {
    const TaskBlock block = first_block(tasks.take(tasks.queue, early));
    if (block.rows > 0) mem_.core.begin_rows(block, before);
    return block;
  }

  // Tasks that share panels follow each other, so that these stay in L2.
  TaskBlock first_block(std::int64_t task) const {
    if (task < 0) return {};
    const TaskSize& size = mem_.size;
    const std::int64_t down = ceil_div(p_.m, size.rows);
    const std::int64_t row = task % down * size.rows, begin = task / down * size.panels;
    const std::int64_t rows = p_.m - row < size.rows ? p_.m - row : size.rows;
    const std::int64_t end = begin + size.panels < panels(p_) ? begin + size.panels : panels(p_);
    return at_depth({row, rows, begin, end, 0, 0}, 0);
  }

  TaskBlock at_depth(TaskBlock block, std::int64_t first) const {
    const std::int64_t depth = Core::depth(p_), left = p_.k - first;
    block.first = first, block.depth = left < depth ? left : depth;
    return block;
  }

  void multiply(const TaskBlock& block, bool last) {
    const bool whole = p_.k <= Core::depth(p_);  // sums of two strips will do, in turns
    const bool packs = packs_in_tasks<Core>(p_);
    if (packs) pack_block(mem_.own, block);
    for (std::int64_t strip = 0; strip < block.rows; strip += Core::kStrip) {
      const std::int64_t rows = block.rows - strip < Core::kStrip ? block.rows - strip : Core::kStrip;
      for (std::int64_t i = block.begin; i < block.end; ++i) {
        const std::int64_t own = i - block.begin;
        float* sums = mem_.sums + (whole ? turn_ : own * mem_.size.rows + strip) * kColumns;
        turn_ = Core::kStrip - turn_;
        const Panel panel = packs ? mem_.own.at(own, 0) : all_.at(i, block.first);
        mem_.core.multiply(panel, block, strip, rows, sums, writer_);
        if (last) writer_.begin(block.row + strip, rows, i * kColumns, sums);
      }
    }
    if (last) mem_.core.finish(), writer_.write(writer_.left());
  }

  const Product& p_;
  Carver carver_;
  ProductScratch<Core> mem_;
  Panels<Core> all_;
  PanelWriter writer_;
  std::int64_t turn_ = 0;
};

template <class Core>
inline bool run_product(const Product& p, const void* packed, const TaskSource& tasks, void* scratch) {
  return ProductRun<Core>(p, packed, scratch).run(tasks);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
