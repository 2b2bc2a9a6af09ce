// Rows of a product's a on their way to packed parts: piece by piece, beside the products of the block before.
#pragma once

#include "kernels/bf16/pack.hpp"
#include "kernels/product/product.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

class RowPacker {
 public:
  // Packs to rows `step` apart, in parts.
  RowPacker(const Product& p, std::int64_t step, const Spread& parts) : p_(p), step_(step), parts_(parts) {}

  void begin(const TaskBlock& block, std::uint16_t* to) {
    block_ = block, to_ = to;
    row_ = depth_ = turn_ = 0;
  }

  std::int64_t pieces() const {
    if (lines()) return round_up(block_.rows, kRowStep) * ceil_div(block_.depth, 32);
    return ceil_div(block_.depth, 32) * ceil_div(block_.rows, 32) * (kLanes + 2 * parts_.parts);
  }

  template <int kParts>
  __attribute__((always_inline)) void pack_piece() {
    lines() ? pack_line<kParts>() : transpose<kParts>();
  }

  void finish() {
    with_parts(parts_.parts, [&](auto n) {
      while (!done()) pack_piece<n.value>();
    });
  }

  bool done() const { return lines() ? row_ >= round_up(block_.rows, kRowStep) : depth_ >= block_.depth; }

 private:
  static constexpr int kPrefetchRows = 4;  // some 16 pieces

  bool lines() const { return p_.a_depth == 1; }  // else columns of a are

  // Null past the last.
  __attribute__((always_inline)) const void* line(std::int64_t i, std::int64_t at) const {
    const std::int64_t count = lines() ? block_.rows : block_.depth, step = lines() ? p_.a_row : p_.a_depth;
    const std::int64_t corner = block_.row * p_.a_row + block_.first * p_.a_depth;
    return i < count ? element_at(p_.a, p_.a_element, corner + i * step + at) : nullptr;
  }

  // Always inlined: g++ takes a function that only fetches for one without effect, and drops its calls.
  static __attribute__((always_inline)) void fetch(const void* from) {
    if (!from) return;
    prefetch<Cache::l1>(from), prefetch<Cache::l1>(static_cast<const char*>(from) + kCacheLine);
  }

  // 32 numbers of a row.
  template <int kParts>
  __attribute__((always_inline)) void pack_line() {
    fetch(line(row_ + kPrefetchRows, depth_));
    const auto parts = load_parts<kParts>(p_.a_element, line(row_, 0), depth_, block_.depth);
    std::uint16_t* out = to_ + row_ * step_ + depth_;
    ATTN_UNROLL for (int i = 0; i < kParts; ++i) _mm512_storeu_si512(out + i * parts_.step, parts.part[i]);
    depth_ += 32;
    if (depth_ >= block_.depth) depth_ = 0, ++row_;
  }

  // Takes the next turn for 32 rows at 32 of the depth: reads a pair of lines of a or, after the last pair, writes a
  // square of 16.
  template <int kParts>
  __attribute__((always_inline)) void transpose() {
    if (turn_ < kLanes) {
      const std::int64_t l = depth_ + 2 * turn_;
      const bool beside = row_ + 32 < block_.rows;
      const std::int64_t next_row = beside ? row_ + 32 : 0, next_line = beside ? l : l + 32;
      fetch(line(next_line, next_row)), fetch(line(next_line + 1, next_row));
      const auto first = load_parts<kParts>(p_.a_element, line(l, 0), row_, block_.rows);
      const auto second = load_parts<kParts>(p_.a_element, line(l + 1, 0), row_, block_.rows);
      ATTN_UNROLL for (int i = 0; i < kParts; ++i) squares_[i].put(turn_, first.part[i], second.part[i]);
    } else {
      const int part = (turn_ - kLanes) / 2, half = (turn_ - kLanes) % 2;
      std::uint16_t* out = to_ + (row_ + half * kLanes) * step_ + depth_ + part * parts_.step;
      if (row_ + half * kLanes < block_.rows) put_transposed(squares_[part].pairs[half], out, step_);
    }
    if (++turn_ < kLanes + 2 * kParts) return;
    turn_ = 0, row_ += 32;
    if (row_ >= block_.rows) row_ = 0, depth_ += 32;
  }

  const Product& p_;
  std::int64_t step_;
  Spread parts_;
  TaskBlock block_{};
  std::uint16_t* to_ = nullptr;
  std::int64_t row_ = 0, depth_ = 0;  // of the next piece
  int turn_ = 0;                      // and of a square its next step
  Square squares_[3];
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
