// Dense products of bf16 parts: rows of a, packed by task or read in place, against b in panels of pairs.
#pragma once

#include "kernels/bf16/row_packer.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

class MatrixProduct {
 public:
  static constexpr std::int64_t kStrip = kStripRows, kLineBytes = kColumns * 2;

  MatrixProduct(const Product& p, const ProductPlan& plan, Workspace& take)
      : p_(p),
        plan_(plan),
        step_(plan.depth + 32),
        part_(plan.task_rows * step_),
        ahead_(p, step_, {plan.parts, part_}) {
    rows_[0] = halves(take, in_place() ? 0 : plan.parts * part_);
    rows_[1] = halves(take, plan.packs_ahead ? plan.parts * part_ : 0);
  }

  static std::int64_t panel_bytes(const ProductPlan& plan, std::int64_t depth) {
    return plan.parts * round_up(depth, 32) * kLineBytes;
  }

  static void pack(const Product& p, const ProductPlan& plan, std::int64_t panel, std::int64_t first,
                   std::int64_t depth, const Panel& to) {
    const Spread spread{plan.parts, round_up(to.depth, 32) * kColumns};
    auto* out = static_cast<std::uint16_t*>(to.data);
    p.b_depth == 1 ? pack_lines(p, panel * kColumns, first, depth, spread, out)
                   : pack_pairs(p, panel * kColumns, first, depth, spread, out);
  }

  void begin_rows(const TaskBlock& block, const TaskBlock* before) {
    next_ = block, pieces_ = 0;
    if (in_place()) return;
    ahead_.begin(block, rows_[turn_]);
    if (!before || !plan_.packs_ahead) return;
    const std::int64_t products = ceil_div(before->rows, kStrip) * (before->end - before->begin);
    pieces_ = ceil_div(ahead_.pieces(), products * ceil_div(before->depth, 32) * products_of(plan_.parts));
  }

  void take_rows() {
    if (in_place()) {
      const void* corner = element_at(p_.a, p_.a_element, next_.row * p_.a_row + next_.first);
      left_ = {static_cast<const std::uint16_t*>(corner), p_.a_row, 0};
      return;
    }
    ahead_.finish();
    left_ = {rows_[turn_], step_, part_};
    turn_ = plan_.packs_ahead ? 1 - turn_ : 0;
  }

  void multiply(const Panel& panel, const TaskBlock& block, std::int64_t strip, std::int64_t rows, float* sums,
                PanelWriter& writer) {
    with_parts(plan_.parts, [&](auto n) {
      block.first == 0 ? multiply_parts<n.value, false>(panel, block, strip, rows, sums, writer)
                       : multiply_parts<n.value, true>(panel, block, strip, rows, sums, writer);
    });
  }

  void finish() { waiting_.finish(); }

 private:
  template <int kParts, bool Accumulate>
  void multiply_parts(const Panel& panel, const TaskBlock& block, std::int64_t strip, std::int64_t rows, float* sums,
                      PanelWriter& writer) {
    constexpr int kProducts = products_of(kParts);
    Left left = left_;
    left.data += strip * left.row;
    const Right right{static_cast<const std::uint16_t*>(panel.data), round_up(panel.depth, 32) * kColumns};
    const std::int64_t pairs = round_up(block.depth, kDepthStep) / 2, steps = ceil_div(pairs, 16) * kProducts;
    const std::int64_t some = ceil_div(writer.left(), steps);
    auto ahead = next_block<kParts>(panel, block.first + block.depth, strip, steps);
    const auto beside = [&] {
      writer.write(some);
      if (kParts > 1) ahead();
      for (std::int64_t i = 0; i < pieces_ && !ahead_.done(); ++i) ahead_.template pack_piece<kParts>();
    };
    multiply_in_turn<kProducts, Accumulate, Streams::right>(round_up(rows, kRowStep), left, right, sums, pairs, beside,
                                                            waiting_);
    writer.write(writer.left());
  }

  // A strip's share of the lines from `from` on of all parts, on their way to L2.
  template <int kParts>
  auto next_block(const Panel& panel, std::int64_t from, std::int64_t strip, std::int64_t steps) const {
    const std::int64_t lines = least_of(panel.depth - from, plan_.depth);
    const std::int64_t share = ceil_div(lines * kStrip, plan_.task_rows), begin = strip / kStrip * share;
    const std::int64_t count = least_of(lines - begin, share), part = round_up(panel.depth, 32) * kLineBytes;
    const auto* data = static_cast<const char*>(panel.data) + (plan_.depth + begin) * kLineBytes;
    PrefetchRanges<kParts, Cache::l2> ahead(ceil_div(count, steps));
    for (int i = 0; i < kParts && count > 0; ++i) ahead.set(i, data + i * part, count * kLineBytes);
    return ahead;
  }

  // Whole rows of bf16, and not 4 KB apart: those would share a set of L1.
  bool in_place() const {
    return p_.a_element == Element::bf16 && plan_.parts == 1 && p_.a_depth == 1 && p_.m % kRowStep == 0 &&
           p_.k % 32 == 0 && p_.a_row % 2048 != 0;
  }

  // A column of b is a line in memory.
  static void pack_lines(const Product& p, std::int64_t column, std::int64_t first, std::int64_t depth,
                         const Spread& spread, std::uint16_t* out) {
    for (int half = 0; half < kColumns; half += kLanes) {
      const void* lines[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        const std::int64_t j = column + half + i;
        lines[i] = j < p.n ? element_at(p.b, p.b_element, j * p.b_column + first) : nullptr;
      }
      pack_columns(p.b_element, lines, depth, 1, spread, out + 2 * half, round_up(depth, 32));
    }
  }

  // A row of b is a line in memory.
  static void pack_pairs(const Product& p, std::int64_t column, std::int64_t first, std::int64_t depth,
                         const Spread& spread, std::uint16_t* out) {
    const auto line = [&](std::int64_t l) {
      return first + l < p.k ? element_at(p.b, p.b_element, (first + l) * p.b_depth) : nullptr;
    };
    for (std::int64_t l = 0; l < round_up(depth, 32); l += 2) {
      pack_pair(p.b_element, line(l), line(l + 1), column, p.n, spread, out + l * kColumns);
    }
  }

  const Product& p_;
  const ProductPlan& plan_;
  std::int64_t step_, part_;  // of packed rows; their odd 64 bytes spread them over the cache
  std::uint16_t* rows_[2];
  int turn_ = 0;  // of rows_: what the next block is packed to
  TaskBlock next_{};
  RowPacker ahead_;
  std::int64_t pieces_ = 0;  // of the next block, packed at a time
  Left left_{};
  Waiting waiting_;
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
