// Dense products for the projections: an element's sum runs over the depth in order, so that it does not depend on
// the other rows, the other columns, or the threads. For any core that multiplies, with b packed into panels of
// kColumns columns.
#pragma once

#include "kernels/plan.hpp"
#include "kernels/product/panel_writer.hpp"
#include "kernels/workspace.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// A packed panel, or the rest of it from a line on; `depth` is the whole panel's, behind which its next part lies.
struct Panel {
  void* data;
  std::int64_t depth;
};

// A block of a task: its rows and panels of c, and the depth that is worked on. Past the last one there are no rows.
struct TaskBlock {
  std::int64_t row, rows, begin, end, first, depth;
};

template <class Core>
concept ProductCore = requires(Core core, const Product& p, const ProductPlan& plan, const Panel& panel,
                               const TaskBlock& block, const TaskBlock* before, std::int64_t n, float* sums,
                               PanelWriter& writer) {
  Core::kStrip;                         // rows that it multiplies at once
  Core::kLineBytes;                     // of a packed panel: of each depth, in its first part
  Core::panel_bytes(plan, n);           // of a depth, all parts
  Core::pack(p, plan, n, n, n, panel);  // (panel, first, depth, to): from a multiple of plan.pack_depth on
  core.begin_rows(block, before);       // of a, for the next block, beside the products of one before, or null
  core.take_rows();                     // from here on those are multiplied
  // (panel, block, strip, rows, sums): sums (rows, kColumns) of the block's rows from `strip` on, anew for the first
  // block, else added; what the writer has left is written meanwhile.
  core.multiply(panel, block, n, n, sums, writer);
  core.finish();  // all sums are in memory, as they are when the writer is called the next time
};

// Packed panels behind each other, each of `depth`.
template <ProductCore Core>
struct Panels {
  const Product& p;
  const ProductPlan& plan;
  char* data;
  std::int64_t depth;

  Panel at(std::int64_t panel, std::int64_t line) const {
    return {data + panel * Core::panel_bytes(plan, depth) + line * Core::kLineBytes, depth};
  }
};

template <ProductCore Core>
inline std::size_t packed_bytes(const Product& p, const ProductPlan& plan) {
  return plan.packs_in_tasks ? 0 : static_cast<std::size_t>(plan.panels * Core::panel_bytes(plan, p.k));
}

template <ProductCore Core>
inline void run_pack(const Product& p, const ProductPlan& plan, void* packed, std::int64_t task) {
  const Panels<Core> to{p, plan, static_cast<char*>(packed), p.k};
  if (p.b_depth == 1) return Core::pack(p, plan, task, 0, p.k, to.at(task, 0));
  const std::int64_t first = task * plan.pack_depth, depth = least_of(p.k - first, plan.pack_depth);
  for (std::int64_t panel = 0; panel < plan.panels; ++panel) {
    Core::pack(p, plan, panel, first, depth, to.at(panel, first));
  }
}

// A block of its panels.
template <ProductCore Core>
inline void pack_block(const Panels<Core>& to, const TaskBlock& block) {
  for (std::int64_t line = 0; line < block.depth; line += to.plan.pack_depth) {
    const std::int64_t lines = least_of(block.depth - line, to.plan.pack_depth);
    for (std::int64_t i = block.begin; i < block.end; ++i) {
      Core::pack(to.p, to.plan, i, block.first + line, lines, to.at(i - block.begin, line));
    }
  }
}

// A task's operands, and its sums by panel: (rows of a task, kColumns).
template <ProductCore Core>
struct ProductScratch {
  Core core;
  float* sums;
  Panels<Core> own;  // where tasks pack b

  ProductScratch(const Product& p, const ProductPlan& plan, Workspace& take)
      : core(p, plan, take),
        sums(take((plan.task_rows * plan.task_panels + Core::kStrip) * kColumns)),
        own{p, plan, nullptr, plan.depth} {
    const std::int64_t bytes = plan.packs_in_tasks ? plan.task_panels * Core::panel_bytes(plan, own.depth) : 0;
    own.data = reinterpret_cast<char*>(take(bytes / 4));
  }
};

// A thread's tasks, block by block.
template <ProductCore Core>
class ProductRun {
 public:
  ProductRun(const Product& p, const ProductPlan& plan, const void* packed, void* scratch)
      : p_(p),
        plan_(plan),
        workspace_{static_cast<float*>(scratch)},
        mem_(p, plan, workspace_),
        all_{p, plan, static_cast<char*>(const_cast<void*>(packed)), p.k},
        writer_(p) {}

  bool run(const TaskSource& tasks) {
    TaskBlock block = begin(tasks, false);
    while (block.rows > 0) {
      mem_.core.take_rows();
      const bool last = block.first + block.depth == p_.k;
      TaskBlock next = last ? TaskBlock{} : at_depth(block, block.first + block.depth);
      if (!last) mem_.core.begin_rows(next, &block);
      if (last && plan_.packs_ahead) next = begin(tasks, true, &block);
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
    const std::int64_t down = ceil_div(p_.m, plan_.task_rows);
    const std::int64_t row = task % down * plan_.task_rows, begin = task / down * plan_.task_panels;
    const std::int64_t rows = least_of(p_.m - row, plan_.task_rows),
                       end = least_of(begin + plan_.task_panels, plan_.panels);
    return at_depth({row, rows, begin, end, 0, 0}, 0);
  }

  TaskBlock at_depth(TaskBlock block, std::int64_t first) const {
    block.first = first, block.depth = least_of(p_.k - first, plan_.depth);
    return block;
  }

  void multiply(const TaskBlock& block, bool last) {
    const bool whole = p_.k <= plan_.depth;  // sums of two strips will do, in turns
    if (plan_.packs_in_tasks) pack_block(mem_.own, block);
    for (std::int64_t strip = 0; strip < block.rows; strip += Core::kStrip) {
      const std::int64_t rows = block.rows - strip < Core::kStrip ? block.rows - strip : Core::kStrip;
      for (std::int64_t i = block.begin; i < block.end; ++i) {
        const std::int64_t own = i - block.begin;
        float* sums = mem_.sums + (whole ? turn_ : own * plan_.task_rows + strip) * kColumns;
        turn_ = Core::kStrip - turn_;
        const Panel panel = plan_.packs_in_tasks ? mem_.own.at(own, 0) : all_.at(i, block.first);
        mem_.core.multiply(panel, block, strip, rows, sums, writer_);
        if (last) writer_.begin(block.row + strip, rows, i * kColumns, sums);
      }
    }
    if (last) mem_.core.finish(), writer_.write(writer_.left());
  }

  const Product& p_;
  const ProductPlan& plan_;
  Workspace workspace_;
  ProductScratch<Core> mem_;
  Panels<Core> all_;
  PanelWriter writer_;
  std::int64_t turn_ = 0;
};

template <ProductCore Core>
inline bool run_product(const Product& p, const ProductPlan& plan, const void* packed, const TaskSource& tasks,
                        void* scratch) {
  return ProductRun<Core>(p, plan, packed, scratch).run(tasks);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
