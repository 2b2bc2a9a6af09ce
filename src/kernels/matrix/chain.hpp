// Products one after the other. On AMX a product's sums leave the tiles between the first products of the next, where
// storing them takes no time; right after their own products the stores would wait for these, and hold up the next.
#pragma once

#include "kernels/matrix/operands.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

enum class Passes { left, right };  // which operand passes by once: it is streamed, and leaves in L1 what is there

#if defined(ATTN_AMX)

class Chain {
 public:
  // C (rows, kColumns) (+)= A · B, over `pairs` pairs. C is whole after the next product, or finish(). `next`: the sums
  // of the product to come, fetched beside this one.
  template <bool Accumulate, Passes Operand>
  void add(std::int64_t rows, Left a, const Right& b, float* c, std::int64_t pairs, const float* next) {
    for (; rows >= 32; rows -= 32) {
      add_rows<Accumulate, Operand>(a, b, c, pairs, rows >= 64 ? c + 32 * kColumns : next);
      a.data += 32 * a.row;
      c += 32 * kColumns;
    }
    if (rows > 0) finish(), multiply<Accumulate>(rows, a, b, c, pairs, 1);
  }

  void finish() {
    if (waiting_) store_sums<2>(waiting_);
    waiting_ = nullptr;
  }

 private:
  template <bool Accumulate, Passes Operand>
  void add_rows(const Left& a, const Right& b, float* c, std::int64_t pairs, const float* next) {
    const std::int64_t floats_a_step = 32 * kColumns * 16 / pairs;
    load<Operand>(a.data, a.row, b.data);
    begin<0, 4, 6, Accumulate>(c, 0), begin<1, 4, 7, Accumulate>(c, 16);
    begin<2, 5, 6, Accumulate>(c, 16 * kColumns), begin<3, 5, 7, Accumulate>(c, 16 * kColumns + 16);
    for (std::int64_t k = 16; k < pairs; k += 16, next += floats_a_step) {
      for (std::int64_t i = 0; i < floats_a_step; i += 16) __builtin_prefetch(next + i, 1);
      load<Operand>(a.data + 2 * k, a.row, b.data + k * 2 * kColumns);
      multiply_operands<2>();
    }
    waiting_ = c;
  }

  template <Passes Operand>
  static void load(const std::uint16_t* left, std::int64_t row, const std::uint16_t* right) {
    load_right<Operand == Passes::right>(right);
    if constexpr (Operand == Passes::right) {
      load_left<2>(left, row);
    } else {
      tile_stream<4>(left, row * 2), tile_stream<5>(left + 16 * row, row * 2);
    }
  }

  // The first product of a tile of sums, which stores those that were there.
  template <int Sum, int A, int B, bool Accumulate>
  void begin(const float* c, std::int64_t at) const {
    constexpr std::int64_t kStep = kColumns * 4;  // bytes
    if (waiting_) tile_store<Sum>(waiting_ + at, kStep);
    if constexpr (Accumulate) {
      tile_load<Sum>(c + at, kStep);
    } else {
      tile_zero<Sum>();
    }
    tile_multiply<Sum, A, B>();
  }

  float* waiting_ = nullptr;  // where the sums in the tiles go
};

#else

struct Chain {
  template <bool Accumulate, Passes>
  void add(std::int64_t rows, const Left& a, const Right& b, float* c, std::int64_t pairs, const float*) {
    multiply<Accumulate>(rows, a, b, c, pairs, 1);
  }
  void finish() {}
};

#endif

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
