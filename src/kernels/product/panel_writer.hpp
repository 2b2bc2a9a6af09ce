// Where the results of a dense product go.
#pragma once

#include "kernels/product/problem.hpp"
#include "kernels/rounding.hpp"
#include "kernels/simd/elements.hpp"
#include "kernels/simd/tile.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// A vector of results at its place.
template <Element element>
inline __attribute__((always_inline)) void store_result(void* out, Vec x, std::int64_t count) {
  if (element == Element::f32 && count >= kLanes) return store(static_cast<float*>(out), x);
  if (element == Element::bf16 && count >= kLanes) return store_bf16(static_cast<std::uint16_t*>(out), x);
  float lane[kLanes];
  store(lane, x);
  narrow(element, lane, out, count < kLanes ? count : kLanes);
}

// Writes a panel's results, sums + bias + residual, some rows at a time: beside the products of the next panel.
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

  // Lines of memory that write() will reach.
  template <class F>
  void each_line(F f) const {
    const std::int64_t bytes = element_bytes(p_.c_element), width = least_of(p_.n - column_, kColumns) * bytes;
    const char* row = static_cast<const char*>(p_.c) + (row_ * p_.c_row + column_) * bytes;
    for (std::int64_t left = left_, step = p_.c_row * bytes; left > 0; --left, row += step) {
      for (std::int64_t at = 0; at < width; at += kCacheLine) f(row + at);
    }
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
    // Locals, since each store might reach a member.
    const float *sums = sums_, *residual = p_.residual;
    char* const out = static_cast<char*>(p_.c);
    const std::int64_t step = p_.c_row;
    std::int64_t at = row_ * step + column_;
    VecU largest = largest_;
    for (std::int64_t i = 0; i < rows; ++i, at += step, sums += kColumns) {
      ATTN_UNROLL for (int w = 0; w < kWidth; ++w) {
        const std::int64_t from = at + w * kLanes, count = columns - w * kLanes;
        Vec x = load(sums + w * kLanes) + bias[w];
        if (residual) x += load_columns(residual + from, count);
        const VecU magnitude = reinterpret_cast<VecU>(x) & 0x7fffffffu;  // NaN's is above all numbers'
        largest = magnitude > largest ? magnitude : largest;
        if (count > 0) store_result<element>(out + from * element_bytes(element), x, count);
      }
    }
    largest_ = largest;
  }

  const Product& p_;
  std::int64_t row_ = 0, left_ = 0, column_ = 0;
  const float* sums_ = nullptr;
  VecU largest_{};
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
