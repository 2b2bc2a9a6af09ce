// y = x · weightᵀ for the few rows of x that a decoder has, as in product/few_rows.hpp, by parts of bf16. Rows of the
// weight are rows of the left operand, as they lie, and rows of x columns of the right one: a sum adds the same
// products of parts in the same order as in product.hpp, for the same bits.
#pragma once

#include "kernels/bf16/pack.hpp"
#include "kernels/plan.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr int kTileRows = 16, kTileDepth = 32, kTileHalves = kTileRows * kTileDepth;
constexpr std::int64_t kPassOutputs = 2 * kTileRows, kTaskOutputs = 128;
constexpr std::int64_t kAhead = 96;  // depths from what is read to what is prefetched

// Tiles 0 and 1 hold the sums, 4 rows of the weight, 5 to 7 the parts of x.
struct FewRowsScratch {
  int parts;                 // of x
  std::int64_t depth, part;  // of x: made up, and elements of a part
  std::uint16_t *line, *x;   // a row in parts; all rows, (parts) (depth / 2, rows, 2)
  std::uint16_t* weight;     // of either tile two in parts, in turn
  float* sums;

  FewRowsScratch(const FewRows& p, const FewRowsPlan& plan, Workspace& take)
      : parts(plan.parts),
        depth(round_up(p.k, kTileDepth)),
        part(depth * (p.m < kTileRows ? p.m : kTileRows)),
        line(halves(take, parts * depth)),
        x(halves(take, parts * part + kTileDepth)),  // the last pairs are loaded 16 wide
        weight(halves(take, 4 * parts * kTileHalves)),
        sums(take(kPassOutputs * kTileRows)) {}
};

// The rows of x from `row` on.
inline void pack_few_rows(const FewRows& p, std::int64_t row, std::int64_t rows, const FewRowsScratch& to) {
  for (std::int64_t i = 0; i < rows; ++i) {
    pack_row(Element::f32, p.a + (row + i) * p.a_row, p.k, {to.parts, to.depth}, to.line, to.depth);
    for (std::int64_t part = 0; part < to.parts; ++part) {
      for (std::int64_t k = 0; k < to.depth; k += 2) {
        __builtin_memcpy(to.x + part * to.part + k * rows + 2 * i, to.line + part * to.depth + k, 4);
      }
    }
  }
}

// A tile of the weight: its place, and its step in bytes.
struct WeightTile {
  const void* data;
  std::int64_t step;
};

// Parts of the weight: a number of bf16, or of 8 bits, is its own high part.
constexpr int weight_parts(Element element, int parts) { return element == Element::f32 ? parts : 1; }

// 16 rows of 32 in parts, kTileHalves apart; past the last row, and from `width` on, zeros. `beside(i)` is called after
// each quarter i.
template <Element element, int kParts, class Beside>
inline __attribute__((always_inline)) void split_tile(const char* corner, std::int64_t step, std::int64_t rows,
                                                      std::int64_t width, std::uint16_t* to, const Beside& beside) {
  ATTN_UNROLL for (int i = 0; i < kTileRows; ++i, corner += step, to += kTileDepth) {
    const auto parts = load_parts<kParts>(element, i < rows ? corner : nullptr, 0, width);
    ATTN_UNROLL for (int part = 0; part < kParts; ++part) {
      _mm512_storeu_si512(to + part * kTileHalves, parts.part[part]);
    }
    if (i % 4 == 3) beside(i / 4);
  }
}

// The weight from row `output` and depth k on, in parts; whole tiles of bf16 stay where they are. What will be read
// some steps later is prefetched, the next pass's rows among it.
template <Element element, int kParts, class Beside>
inline __attribute__((always_inline)) WeightTile load_weight(const FewRows& p, std::int64_t output, std::int64_t k,
                                                             std::uint16_t* to, const Beside& beside) {
  const std::int64_t bytes = element_bytes(element), step = p.weight_row * bytes, rows = p.n - output;
  const auto at = [&](std::int64_t row, std::int64_t depth) {
    return static_cast<const char*>(p.weight) + row * step + depth * bytes;
  };
  const char* corner = at(output, k);
  const bool next = k + kAhead >= p.k;
  const char* ahead = next ? at(output + kPassOutputs, k + kAhead - p.k) : at(output, k + kAhead);
  const auto fetch = [&](int quarter) {
    for (int i = 4 * quarter; i < 4 * quarter + 4; ++i) {
      for (std::int64_t line = 0; line < kTileDepth * bytes; line += 64) prefetch<Cache::l1>(ahead + i * step + line);
    }
    beside(quarter);
  };
  if (rows < kTileRows || p.k - k < kTileDepth) {
    split_tile<element, kParts>(corner, step, rows, p.k - k, to, fetch);
    return {to, 64};
  }
  if (element != Element::bf16) {
    split_tile<element, kParts>(corner, step, kTileRows, kTileDepth, to, fetch);
    return {to, 64};
  }
  for (int i = 0; i < 4; ++i) fetch(i);
  return {corner, step};
}

// A quarter of the products of x's parts and the weight's, in multiply_parts()' order.
template <int Sum, int kParts, int kWeightParts>
inline __attribute__((always_inline)) void multiply_weight(const WeightTile& weight, int quarter) {
  const auto load = [&](int part) {
    tile_load<4>(static_cast<const std::uint16_t*>(weight.data) + part * kTileHalves, weight.step);
  };
  if constexpr (kParts == 3) {
    if (quarter == 0 && kWeightParts == 3) load(2), tile_multiply<Sum, 4, 5>();
    if (quarter == 1 && kWeightParts == 3) load(1), tile_multiply<Sum, 4, 5>();
    if (quarter == 2 && kWeightParts == 3) tile_multiply<Sum, 4, 6>();
    if (quarter == 2) load(0), tile_multiply<Sum, 4, 6>();
    if (quarter == 3) tile_multiply<Sum, 4, 7>(), tile_multiply<Sum, 4, 5>();
  } else {
    if (quarter == 1 && kWeightParts == 2) load(1), tile_multiply<Sum, 4, 5>();
    if (quarter == 2) load(0), tile_multiply<Sum, 4, 5>();
    if (quarter == 3 && kParts == 2) tile_multiply<Sum, 4, 6>();
  }
}

// Sums (kPassOutputs, 16 rows of x). While a tile of the weight is multiplied the next below it is split.
template <Element element, int kParts>
inline void few_rows_pass(const FewRows& p, std::int64_t output, std::int64_t rows, const FewRowsScratch& mem) {
  constexpr int kWeightParts = weight_parts(element, kParts);
  WeightTile weight[2];
  const auto load = [&](int tile, std::int64_t k, const auto& beside) {
    std::uint16_t* to = mem.weight + (k / kTileDepth % 2 * 2 + tile) * kParts * kTileHalves;
    weight[tile] = load_weight<element, kWeightParts>(p, output + tile * kTileRows, k, to, beside);
  };
  const auto multiply = [&]<int Sum>(PartCount<Sum>, std::int64_t k) {
    const auto quarter = [now = weight[Sum]](int i) { multiply_weight<Sum, kParts, kWeightParts>(now, i); };
    if (k + kTileDepth < p.k) return load(Sum, k + kTileDepth, quarter);
    for (int i = 0; i < 4; ++i) quarter(i);
  };
  tile_zero<0>(), tile_zero<1>();
  for (int tile = 0; tile < 2; ++tile) load(tile, 0, [](int) {});
  for (std::int64_t k = 0; k < p.k; k += kTileDepth) {
    const std::uint16_t* x = mem.x + k * rows;
    tile_load<5>(x, 4 * rows);
    if constexpr (kParts >= 2) tile_load<6>(x + mem.part, 4 * rows);
    if constexpr (kParts == 3) tile_load<7>(x + 2 * mem.part, 4 * rows);
    multiply(PartCount<0>{}, k), multiply(PartCount<1>{}, k);
  }
  tile_store<0>(mem.sums, 64), tile_store<1>(mem.sums + kTileRows * kTileRows, 64);
}

// Returns whether all results are in float32's range.
inline bool write_few_rows(const FewRows& p, std::int64_t output, std::int64_t row, std::int64_t rows,
                           const float* sums) {
  bool in_range = true;
  const std::int64_t outputs = p.n - output < kPassOutputs ? p.n - output : kPassOutputs;
  for (std::int64_t i = 0; i < rows; ++i) {
    float* out = p.c + (row + i) * p.c_row + output;
    for (std::int64_t j = 0; j < outputs; ++j) {
      out[j] = sums[j * kTileRows + i] + (p.bias ? p.bias[output + j] : 0);
      in_range = in_range && (float_to_bits(out[j]) & 0x7f800000u) != 0x7f800000u;
    }
  }
  return in_range;
}

template <int kParts>
inline void few_rows_pass(const FewRows& p, std::int64_t output, std::int64_t rows, const FewRowsScratch& mem) {
  switch (p.element) {
    case Element::bf16:
      return few_rows_pass<Element::bf16, kParts>(p, output, rows, mem);
    case Element::i8:
      return few_rows_pass<Element::i8, kParts>(p, output, rows, mem);
    default:
      return few_rows_pass<Element::f32, kParts>(p, output, rows, mem);
  }
}

inline bool run_few_rows(const FewRows& p, const FewRowsPlan& plan, std::int64_t task, const FewRowsScratch& mem) {
  const std::int64_t begin = task * plan.task_outputs, end = least_of(begin + plan.task_outputs, p.n);
  bool in_range = true;
  for (std::int64_t row = 0; row < p.m; row += kTileRows) {
    const std::int64_t rows = p.m - row < kTileRows ? p.m - row : kTileRows;
    pack_few_rows(p, row, rows, mem);
    for (std::int64_t output = begin; output < end; output += kPassOutputs) {
      with_parts(plan.parts, [&](auto n) { few_rows_pass<n.value>(p, output, rows, mem); });
      in_range = write_few_rows(p, output, row, rows, mem.sums) && in_range;
    }
  }
  return in_range;
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
