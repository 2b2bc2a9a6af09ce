// Dense products of bf16 parts: rows of a, packed by task or read in place, against b in panels of pairs.
#pragma once

#include "kernels/matrix/pack.hpp"
#include "kernels/unit/product.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// Lines of a packed panel, of all its parts, on their way to L2: some with each of `calls`.
class PanelAhead {
 public:
  PanelAhead(const char* line, std::int64_t lines, std::int64_t calls, const Spread& parts)
      : line_(line), left_(lines), each_(ceil_div(lines, calls)), parts_(parts) {}

  void operator()() {
    for (std::int64_t i = 0; i < each_ && left_ > 0; ++i, --left_, line_ += 2 * kColumns) {
      for (int part = 0; part < parts_.parts; ++part) __builtin_prefetch(line_ + 2 * part * parts_.step, 0, 2);
    }
  }

 private:
  const char* line_;
  std::int64_t left_, each_;
  Spread parts_;
};

class MatrixProduct {
 public:
  static constexpr std::int64_t kHeight = 96, kDepth = kBlockDepth;  // sums and rows of a in L2
  static constexpr std::int64_t kStrip = kStripRows, kLineBytes = kColumns * 2;
  static constexpr std::int64_t kDeep = 4, kDeepPanels = 12;

  MatrixProduct(const Product& p, std::int64_t height, Carver& take)
      : p_(p), step_(depth(p) + 32), part_(height * step_) {
    rows_ = halves(take, in_place() ? 0 : parts(p) * part_);
  }

  // So that a strip of rows stays in L1, and panels in L2, with all their parts.
  static std::int64_t depth(const Product& p) { return parts(p) == 1 ? kDepth : kDepth * 3 / 4 / parts(p); }
  static std::int64_t deep_height(const Product& p) { return (parts(p) == 1 ? 4 : 2) * kHeight; }
  static std::int64_t task_panels(const Product& p) { return parts(p) == 1 ? 32 : parts(p) == 2 ? 16 : 12; }

  static std::int64_t panel_bytes(const Product& p, std::int64_t depth) {
    return parts(p) * round_up(depth, 32) * kLineBytes;
  }

  static void pack(const Product& p, std::int64_t panel, std::int64_t first, std::int64_t depth, const Panel& to) {
    const Spread spread{parts(p), round_up(to.depth, 32) * kColumns};
    auto* out = static_cast<std::uint16_t*>(to.data);
    p.b_depth == 1 ? pack_lines(p, panel * kColumns, first, depth, spread, out)
                   : pack_pairs(p, panel * kColumns, first, depth, spread, out);
  }

  void load_rows(std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t depth) {
    const void* corner = element_at(p_.a, p_.a_element, row * p_.a_row + first * p_.a_depth);
    left_ = {rows_, step_, part_};
    if (in_place()) {
      left_ = {static_cast<const std::uint16_t*>(corner), p_.a_row, 0};
      return;
    }
    const Spread spread{parts(p_), part_};
    p_.a_depth == 1 ? pack_rows(corner, rows, depth, spread) : transpose_rows(corner, rows, depth, spread);
  }

  void multiply(const Panel& panel, std::int64_t first, std::int64_t depth, std::int64_t strip, std::int64_t rows,
                float* sums, PanelWriter& writer) const {
    Left left = left_;
    left.data += strip * left.row;
    const Right right{static_cast<const std::uint16_t*>(panel.data), round_up(panel.depth, 32) * kColumns};
    const std::int64_t pairs = round_up(depth, kDepthStep) / 2, steps = ceil_div(pairs, 16) * products_of(parts(p_));
    const std::int64_t some = ceil_div(writer.left(), steps);
    const auto run = [&]<class Beside>(Beside& beside) {
      const auto add = first == 0 ? ATTN_UNIT::multiply<false, true, Beside> : ATTN_UNIT::multiply<true, true, Beside>;
      add(round_up(rows, kRowStep), left, right, sums, pairs, products_of(parts(p_)), beside);
    };
    const auto write = [&] { writer.write(some); };
    if (parts(p_) == 1) {
      run(write);  // bound by memory as it is
    } else {
      PanelAhead ahead = next_block(panel, first + depth, strip, steps);
      const auto both = [&] { write(), ahead(); };
      run(both);
    }
    writer.write(writer.left());
  }

 private:
  static_assert(kHeight % 32 == 0 && kDepth % 32 == 0 && kPackDepth % 32 == 0);

  // A strip's share of the lines from `from` on.
  PanelAhead next_block(const Panel& panel, std::int64_t from, std::int64_t strip, std::int64_t steps) const {
    const std::int64_t left = panel.depth - from, lines = left < depth(p_) ? left : depth(p_);
    const std::int64_t share = ceil_div(lines * kStrip, part_ / step_), begin = strip / kStrip * share;
    const std::int64_t count = lines - begin < share ? lines - begin : share;
    const auto* data = static_cast<const char*>(panel.data) + (depth(p_) + begin) * kLineBytes;
    return {data, count < 0 ? 0 : count, steps, {parts(p_), round_up(panel.depth, 32) * kColumns}};
  }

  // Whole rows of bf16, and not 4 KB apart: those would share a set of L1.
  bool in_place() const {
    return p_.a_element == Element::bf16 && parts(p_) == 1 && p_.a_depth == 1 && p_.m % kRowStep == 0 &&
           p_.k % 32 == 0 && p_.a_row % 2048 != 0;
  }

  static int parts(const Product& p) { return parts_of(operands(p), p.precision); }

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

  void pack_rows(const void* corner, std::int64_t rows, std::int64_t depth, const Spread& spread) {
    for (std::int64_t i = 0; i < round_up(rows, kRowStep); ++i) {
      const void* line = i < rows ? element_at(corner, p_.a_element, i * p_.a_row) : nullptr;
      pack_row(p_.a_element, line, depth, spread, rows_ + i * step_, round_up(depth, 32));
    }
  }

  // A column of a is a line in memory.
  void transpose_rows(const void* corner, std::int64_t rows, std::int64_t depth, const Spread& spread) {
    for (std::int64_t l = 0; l < depth; l += 32) {
      const void* lines[32];
      for (int i = 0; i < 32; ++i) {
        lines[i] = l + i < depth ? element_at(corner, p_.a_element, (l + i) * p_.a_depth) : nullptr;
      }
      pack_transposed(p_.a_element, lines, rows, spread, rows_ + l, step_);
    }
  }

  const Product& p_;
  std::int64_t step_, part_;  // of packed rows; their odd 64 bytes spread them over the cache
  std::uint16_t* rows_;
  Left left_{};
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
