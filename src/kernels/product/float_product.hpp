// Dense products in float32: broadcasts of a, float32 read in place, against b in panels of (depth, kColumns).
#pragma once

#include "kernels/product/product.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

class FloatProduct {
 public:
  static constexpr std::int64_t kStrip = kRows, kLineBytes = kColumns * 4;

  FloatProduct(const Product& p, const ProductPlan& plan, Workspace& take)
      : p_(p), height_(plan.task_rows), depth_(plan.depth), buffer_(take(in_place() ? 0 : height_ * depth_)) {}

  static std::int64_t panel_bytes(const ProductPlan&, std::int64_t depth) { return depth * kLineBytes; }

  // Zeros past the last column.
  static void pack(const Product& p, const ProductPlan&, std::int64_t panel, std::int64_t first, std::int64_t depth,
                   const Panel& to) {
    const std::int64_t column = panel * kColumns, columns = p.n - column < kColumns ? p.n - column : kColumns;
    auto* out = static_cast<float*>(to.data);
    for (std::int64_t l = first; l < first + depth; ++l) {
      copy(p.b_element, element_at(p.b, p.b_element, l * p.b_depth + column * p.b_column), p.b_column, columns, out);
      out += columns;
      for (std::int64_t j = columns; j < kColumns; ++j) *out++ = 0;
    }
  }

  void begin_rows(const TaskBlock& block, const TaskBlock*) { next_ = block; }

  void take_rows() {
    const void* corner = element_at(p_.a, p_.a_element, next_.row * p_.a_row + next_.first * p_.a_depth);
    if (in_place()) {
      left_ = {static_cast<const float*>(corner), p_.a_row, 1};
    } else if (p_.a_depth == 1) {
      left_ = {buffer_, depth_, 1};
      for (std::int64_t i = 0; i < next_.rows; ++i) {
        widen(p_.a_element, element_at(corner, p_.a_element, i * p_.a_row), buffer_ + i * depth_, next_.depth);
      }
    } else {  // lines far apart in memory
      left_ = {buffer_, 1, height_};
      for (std::int64_t l = 0; l < next_.depth; ++l) {
        widen(p_.a_element, element_at(corner, p_.a_element, l * p_.a_depth), buffer_ + l * height_, next_.rows);
      }
    }
  }

  void multiply(const Panel& panel, const TaskBlock& block, std::int64_t strip, std::int64_t rows, float* sums,
                PanelWriter& writer) const {
    writer.write(writer.left());
    const auto* right = static_cast<const float*>(panel.data);
    const auto add = block.first == 0 ? ATTN_UNIT::panel<false> : ATTN_UNIT::panel<true>;
    add(rows, left_.data + strip * left_.row, left_.row, left_.depth, right, kColumns, sums, kColumns, block.depth);
  }

  void finish() const {}

 private:
  bool in_place() const { return p_.a_element == Element::f32 && p_.a_depth == 1; }

  // n elements, `step` apart, as float32.
  static void copy(Element element, const void* from, std::int64_t step, std::int64_t n, float* out) {
    if (step == 1) return widen(element, from, out, n);
    if (element == Element::f32) {
      for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<const float*>(from)[i * step];
    } else {
      for (std::int64_t i = 0; i < n; ++i) widen(element, element_at(from, element, i * step), out + i, 1);
    }
  }

  struct Rows {
    const float* data;
    std::int64_t row, depth;
  };

  const Product& p_;
  std::int64_t height_, depth_;
  float* buffer_;
  TaskBlock next_{};
  Rows left_{};
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
