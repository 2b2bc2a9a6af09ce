// Dense products in float32: strips of a's rows, copied some at a time, against b in panels of (depth, kColumns).
#pragma once

#include "kernels/prefetch.hpp"
#include "kernels/product/product.hpp"
#include "kernels/simd/transpose.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr std::int64_t kTaken = 4 * kRows;                            // rows that are copied at once
constexpr std::int64_t kMostDepth = 512, kRowStep = kMostDepth + 16;  // of a block; of a copied row: not 2 KB

// Lines of memory that will be needed soon: a's next rows, and where sums will be written. They come to L2 one by one
// beside the products, since many at once would hold up the loads between them.
class LinesAhead {
 public:
  struct Share {
    const char *const *at, *const *end;
  };

  LinesAhead() {}  // nothing of it is read before it is set

  // `count` ranges of so many bytes, `step` bytes apart, in so many shares.
  void set(const void* first, std::int64_t step, std::int64_t count, std::int64_t bytes, std::int64_t shares) {
    const std::int64_t each = ceil_div(bytes, kCacheLine), most = (kMost - kToWrite) / (each > 0 ? each : 1);
    const char *range = static_cast<const char*>(first), **to = lines_ + kToWrite;
    for (std::int64_t left = least_of(count, most); left > 0; --left, range += step) {
      for (std::int64_t i = 0; i < each; ++i) *to++ = range + i * kCacheLine;
    }
    begin_ = kToWrite, end_ = to - lines_;
    share_ = ceil_div(end_ - begin_, shares);
  }

  // The next share, with what the writer will reach in front of it.
  Share next(const PanelWriter& writer) {
    const char** at = lines_ + begin_;
    writer.each_line([&](const char* line) { *--at = line; });
    begin_ = least_of(begin_ + share_, end_);
    return {at, lines_ + begin_};
  }

 private:
  static constexpr std::int64_t kToWrite = kRows * ceil_div(kColumns * 4, kCacheLine);
  static constexpr std::int64_t kMost = kToWrite + kTaken * kMostDepth * 4 / kCacheLine;

  std::int64_t begin_ = kToWrite, end_ = kToWrite, share_ = 0;
  const char* lines_[kMost];
};

// Beside two steps of a tile's depth: a line of the share, and the panel from L2 to L1, some steps ahead.
struct FetchBeside {
  LinesAhead::Share lines;

  __attribute__((always_inline)) void operator()(const float* panel, std::int64_t) {
    constexpr std::int64_t ahead = 8 * kColumns;
    ATTN_UNROLL for (std::int64_t i = 0; i < 2 * kColumns; i += kCacheLine / 4) prefetch<Cache::l1>(panel + ahead + i);
    if (lines.at != lines.end) prefetch<Cache::l2>(*lines.at++);
  }
};

// A strip of rows by a panel. A copied row's steps are known when compiled, for otherwise they take registers and
// instructions among the multiply-adds; rows where they lie (kRow 0) have any step.
template <std::int64_t kRow, std::int64_t kDepth, int Rows, bool Accumulate>
__attribute__((noinline)) void strip_tile(const float* left, std::int64_t row, const float* right, float* sums,
                                          std::int64_t depth, LinesAhead::Share lines) {
  FetchBeside beside{lines};
  tile<Rows, Accumulate>(left, kRow > 0 ? kRow : row, kDepth, right, kColumns, sums, kColumns, depth, beside);
}

using StripTile = void(const float* left, std::int64_t row, const float* right, float* sums, std::int64_t depth,
                       LinesAhead::Share);

// Copied rows that are not there are computed too, up to a half or a whole strip.
template <std::int64_t kRow, std::int64_t kDepth, bool Accumulate>
StripTile* strip_tile_of(std::int64_t rows) {
  return rows > kRows / 2 ? strip_tile<kRow, kDepth, kRows, Accumulate>
                          : strip_tile<kRow, kDepth, kRows / 2, Accumulate>;
}

class FloatProduct {
 public:
  static constexpr std::int64_t kStrip = kRows, kLineBytes = kColumns * 4;

  FloatProduct(const Product& p, const ProductPlan& plan, Workspace& take)
      : p_(p), copies_(plan.copies_rows), rows_(take(kTaken * kRowStep)) {}

  static std::int64_t panel_bytes(const ProductPlan&, std::int64_t depth) { return depth * kLineBytes; }

  // Zeros past the last column.
  static void pack(const Product& p, const ProductPlan&, std::int64_t panel, std::int64_t first, std::int64_t depth,
                   const Panel& to) {
    const std::int64_t column = panel * kColumns, columns = least_of(p.n - column, kColumns);
    const void* from = element_at(p.b, p.b_element, first * p.b_depth + column * p.b_column);
    auto* out = static_cast<float*>(to.data);
    std::int64_t l = 0;
    if (p.b_depth == 1 && columns == kColumns) {
      l = depth / kLanes * kLanes;
      switch (p.b_element) {
        case Element::bf16:
          pack_squares<Element::bf16>(from, p.b_column, l, out);
          break;
        case Element::f16:
          pack_squares<Element::f16>(from, p.b_column, l, out);
          break;
        case Element::i8:
          pack_squares<Element::i8>(from, p.b_column, l, out);
          break;
        case Element::f32:
          pack_squares<Element::f32>(from, p.b_column, l, out);
      }
    }
    const bool whole = p.b_element == Element::f32 && p.b_column == 1 && columns == kColumns;
    for (; whole && l < depth; ++l) {
      const float* line = static_cast<const float*>(from) + l * p.b_depth;
      ATTN_UNROLL for (std::int64_t at = 0; at < kColumns; at += kCacheLine / 4) {
        prefetch<Cache::l2>(line + kLinesAhead * p.b_depth + at);
      }
      move<kColumns>(line, out + l * kColumns);
    }
    for (; l < depth; ++l) {
      float* line = out + l * kColumns;
      copy(p.b_element, element_at(from, p.b_element, l * p.b_depth), p.b_column, columns, line);
      for (std::int64_t j = columns; j < kColumns; ++j) line[j] = 0;
    }
  }

  void begin_rows(const TaskBlock& block, const TaskBlock*) { next_ = block; }

  void take_rows() { now_ = next_, next_ = {}, taken_ = -1; }

  void multiply(const Panel& panel, const TaskBlock& block, std::int64_t strip, std::int64_t rows, float* sums,
                PanelWriter& writer) {
    if (strip / kTaken != taken_) take(strip / kTaken);
    const bool as_it_lies = lies(rows);
    const float* left = as_it_lies ? static_cast<const float*>(row(block, strip)) : rows_ + strip % kTaken * kRowStep;
    tile_of(rows, block.first > 0)(left, p_.a_row, static_cast<const float*>(panel.data), sums, block.depth,
                                   ahead_.next(writer));
    writer.write(writer.left());
  }

  void finish() const {}

 private:
  static constexpr std::int64_t kLinesAhead = 16;  // of b that is packed

  bool lie_along() const { return p_.a_depth == 1; }  // a's rows

  // Whether a strip of so many rows is read from where it lies.
  bool lies(std::int64_t rows) const { return !copies_ && rows == kRows; }

  StripTile* tile_of(std::int64_t rows, bool accumulate) const {
    if (lies(rows)) return accumulate ? strip_tile<0, 1, kRows, true> : strip_tile<0, 1, kRows, false>;
    if (lie_along())
      return accumulate ? strip_tile_of<kRowStep, 1, true>(rows) : strip_tile_of<kRowStep, 1, false>(rows);
    return accumulate ? strip_tile_of<1, kRows, true>(rows) : strip_tile_of<1, kRows, false>(rows);
  }

  const void* row(const TaskBlock& block, std::int64_t i) const {
    return element_at(p_.a, p_.a_element, (block.row + i) * p_.a_row + block.first * p_.a_depth);
  }

  // Copies the block's rows from the group's first on: as they lie, or the numbers of a depth of a strip side by side.
  void take(std::int64_t group) {
    taken_ = group;
    const std::int64_t first = group * kTaken, rows = least_of(now_.rows - first, kTaken);
    const void* from = row(now_, first);
    for (std::int64_t i = copies_ ? 0 : rows / kRows * kRows; lie_along() && i < rows; ++i) {
      widen(p_.a_element, element_at(from, p_.a_element, i * p_.a_row), rows_ + i * kRowStep, now_.depth);
    }
    if (!lie_along()) take_depths(from, rows, p_.m - now_.row - first);
    look_ahead(first + kTaken, ceil_div(rows, kRows) * (now_.end - now_.begin));
  }

  // `rows` of so many that are in memory. Vectors reach past a strip's rows, where those of the next depth will be.
  void take_depths(const void* from, std::int64_t rows, std::int64_t in_memory) const {
    constexpr std::int64_t reach = round_up(kRows, kLanes);
    const Element element = p_.a_element;
    const std::int64_t whole = element == Element::f32 ? least_of(rows, in_memory - reach + 1) : 0;
    for (std::int64_t l = 0; l < now_.depth; ++l) {
      const void* line = element_at(from, element, l * p_.a_depth);
      std::int64_t i = 0;
      for (; i < whole; i += kRows) {
        move<reach>(static_cast<const float*>(line) + i, rows_ + i * kRowStep + l * kRows);
      }
      for (; i < rows; i += kRows) {
        widen(element, element_at(line, element, i), rows_ + i * kRowStep + l * kRows, least_of(rows - i, kRows));
      }
    }
  }

  // Begins to fetch what will be taken next, of this block or the next one.
  void look_ahead(std::int64_t first, std::int64_t shares) {
    const bool ends = first >= now_.rows;
    const TaskBlock& block = ends ? next_ : now_;
    if (ends) first = 0;
    const std::int64_t count = least_of(block.rows - first, kTaken), bytes = element_bytes(p_.a_element);
    if (lie_along()) {
      ahead_.set(row(block, first), p_.a_row * bytes, count, block.depth * bytes, shares);
    } else {
      ahead_.set(row(block, first), p_.a_depth * bytes, block.depth, count * bytes, shares);
    }
  }

  // So many floats, in vectors.
  template <std::int64_t kCount>
  static __attribute__((always_inline)) void move(const float* from, float* to) {
    ATTN_UNROLL for (std::int64_t i = 0; i < kCount; i += kLanes) store(to + i, load(from + i));
  }

  // `depth` lines, a square of each vector of columns at a time.
  template <Element element>
  static void pack_squares(const void* from, std::int64_t column, std::int64_t depth, float* out) {
    for (std::int64_t first = 0; first < depth; first += kLanes) {
      ATTN_UNROLL for (int w = 0; w < kWidth; ++w) {
        Vec square[kLanes];
        ATTN_UNROLL for (int j = 0; j < kLanes; ++j) {
          square[j] = lanes_at(element, element_at(from, element, first + (w * kLanes + j) * column));
        }
        transpose(square);
        ATTN_UNROLL for (int l = 0; l < kLanes; ++l) store(out + (first + l) * kColumns + w * kLanes, square[l]);
      }
    }
  }

  // n elements, `step` apart, as float32.
  static void copy(Element element, const void* from, std::int64_t step, std::int64_t n, float* out) {
    if (step == 1) return widen(element, from, out, n);
    for (std::int64_t i = 0; i < n; ++i) out[i] = number_at(element, element_at(from, element, i * step));
  }

  const Product& p_;
  bool copies_;  // all of a's rows
  float* rows_;
  TaskBlock now_{}, next_{};
  std::int64_t taken_ = -1;  // group of rows
  LinesAhead ahead_;
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
