// Products with a quantised matrix: y = x · weightᵀ, few rows and many by the same steps, so that a row has the same
// bits in both.
//
// In float32 a panel of the weight is widened, some depth of it at a time, and multiplied by the register tile: an
// element's sum runs over the depth in order, one fused multiply-add each, as in product.hpp.
//
// In bytes each block of a row of x is rounded to whole numbers up to ±127 of a scale of its own. A block's products of
// bytes are summed as integers, which is exact, and one fused multiply-add adds this sum by both scales.
#pragma once

#include <cstddef>

#include "kernels/prefetch.hpp"
#include "kernels/product/quantized_problem.hpp"
#include "kernels/rounding.hpp"
#include "kernels/simd/elements.hpp"
#include "kernels/simd/tile.hpp"
#include "kernels/simd/words.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr int kGroup = 16;               // outputs that lie together
constexpr int kSides = kGroup / kLanes;  // vectors of them
constexpr std::int64_t kTaskRows = 96;

// How a form's scales and codes lie (QuantizedMatrix).
template <int kBitsOf, int kBlockOf, bool kNestedOf, bool kLeastOf>
struct Layout {
  static constexpr int kBits = kBitsOf, kBlock = kBlockOf, kWords = kBlock / 4;
  static constexpr bool kNested = kNestedOf, kLeast = kLeastOf, kLevels = kBits == 4 && !kLeast;
  // Codes that may be above 127, which take two products where the processor adds pairs in 16 bits.
  static constexpr bool kFull = kLevels || (kBits == 8 && !kNested && !kLeast);
  static constexpr int kKinds = kLeast ? 2 : 1, kShared = kNested ? 256 : kBlock;
  static constexpr std::int64_t kHalves = 2 * kKinds * kGroup,                 // bytes of float16s
      kRecord = kHalves + (kNested ? kShared / kBlock * kKinds * kGroup : 0),  // of a run's scales
      kCodes = std::int64_t{kBlock} * kGroup * kBits / 8;                      // of a block
};

// A group of the weight's outputs.
template <class L>
class Group {
 public:
  Group(const QuantizedProduct& p, std::int64_t group)
      : codes_(p.codes + group * p.code_stride), scales_(p.scales + group * p.scale_stride) {
    if constexpr (L::kLevels) levels_ = all_words(p.levels);
  }

  // The codes of a block, four of each output in a word.
  inline __attribute__((always_inline)) void words(std::int64_t block, int side, VecU (&out)[L::kWords]) const {
    const std::uint8_t* at = codes_ + block * L::kCodes + side * kLanes * 4;
    if constexpr (L::kBits == 8) {
      ATTN_UNROLL for (int i = 0; i < L::kWords; ++i) out[i] = load_words(at + i * kGroup * 4);
    } else {
      ATTN_UNROLL for (int i = 0; i < L::kWords; i += 2) {
        const VecU both = load_words(at + i / 2 * kGroup * 4);
        out[i] = both & 0x0f0f0f0fu, out[i + 1] = both >> 4 & 0x0f0f0f0fu;
        if constexpr (L::kLevels) out[i] = look_up(levels_, out[i]), out[i + 1] = look_up(levels_, out[i + 1]);
      }
    }
    prefetch<Cache::l1>(at + kAhead);
  }

  inline __attribute__((always_inline)) void scales(std::int64_t block, int side, Vec& scale, Vec& least) const {
    const std::uint8_t* record = scales_ + block / (L::kShared / L::kBlock) * L::kRecord;
    scale = halves_at(record + side * kLanes * 2);
    if constexpr (L::kLeast) least = halves_at(record + (kGroup + side * kLanes) * 2);
    if constexpr (L::kNested) {
      const std::uint8_t* own = record + L::kHalves + block % (L::kShared / L::kBlock) * L::kKinds * kGroup;
      const auto* number = reinterpret_cast<const std::int8_t*>(own) + side * kLanes;
      scale = scale * byte_lanes(number);
      if constexpr (L::kLeast) least = least * byte_lanes(number + kGroup);
    }
  }

 private:
  static constexpr std::int64_t kAhead = 2048;

  const std::uint8_t *codes_, *scales_;
  VecU levels_{};
};

// Blocks [first, last) of a panel of kColumns outputs, as float32 (depth, kColumns).
template <class L>
inline void widen_panel(const QuantizedProduct& p, std::int64_t panel, std::int64_t first, std::int64_t last,
                        float* out) {
  ATTN_UNROLL for (int w = 0; w < kWidth; ++w) {
    const std::int64_t column = panel * kColumns + w * kLanes;
    if (column >= round_up(p.n, kGroup)) {
      for (std::int64_t l = 0; l < (last - first) * L::kBlock; ++l) store(out + l * kColumns + w * kLanes, splat(0.f));
      continue;
    }
    const Group<L> group(p, column / kGroup);
    const int side = static_cast<int>(column % kGroup) / kLanes;
    const Vec zero = splat(static_cast<float>(p.zero));
    float* at = out + w * kLanes;
    for (std::int64_t block = first; block < last; ++block) {
      VecU word[L::kWords];
      Vec scale, least;
      group.words(block, side, word);
      group.scales(block, side, scale, least);
      for (int i = 0; i < L::kWords; ++i) {
        ATTN_UNROLL for (int byte = 0; byte < 4; ++byte, at += kColumns) {
          const VecI level = reinterpret_cast<VecI>(word[i] >> 8 * byte & 255u);
          const Vec number = __builtin_convertvector(level, Vec);
          if constexpr (L::kLeast) {
            store(at, number * scale + least);
          } else {
            store(at, (number - zero) * scale);
          }
        }
      }
    }
  }
}

// Stores `rows` of sums (rows, step) + bias; returns whether all are in range.
inline bool write_sums(const QuantizedProduct& p, std::int64_t row, std::int64_t rows, std::int64_t column,
                       std::int64_t columns, const float* sums, std::int64_t step) {
  std::uint32_t out_of_range = 0;
  columns = least_of(columns, p.n - column);
  for (std::int64_t i = 0; i < rows; ++i) {
    float* out = p.c + (row + i) * p.c_row + column;
    for (std::int64_t j = 0; j < columns; ++j) {
      out[j] = sums[i * step + j] + (p.bias ? p.bias[column + j] : 0);
      out_of_range |= (float_to_bits(out[j]) & 0x7f800000u) == 0x7f800000u;
    }
  }
  return out_of_range == 0;
}

template <class L>
bool run_floats(const QuantizedProduct& p, std::int64_t panel_first, std::int64_t panel_last, std::int64_t row,
                std::int64_t rows, float* scratch) {
  constexpr std::int64_t most = 128 / L::kBlock;
  float *widened = scratch, *sums = scratch + 128 * kColumns;
  bool fits = true;
  const float* a = p.a + row * p.a_row;
  for (std::int64_t i = panel_first; i < panel_last; ++i) {
    // Few rows take a block at a time, which stays close.
    const std::int64_t step = rows > 4 ? most : 32 / L::kBlock, blocks = p.k / L::kBlock;
    for (std::int64_t block = 0; block < blocks; block += step) {
      const std::int64_t last = least_of(block + step, blocks), depth = (last - block) * L::kBlock;
      widen_panel<L>(p, i, block, last, widened);
      const float* left = a + block * L::kBlock;
      if (block == 0) {
        panel<false>(rows, left, p.a_row, 1, widened, kColumns, sums, kColumns, depth);
      } else {
        panel<true>(rows, left, p.a_row, 1, widened, kColumns, sums, kColumns, depth);
      }
    }
    fits = write_sums(p, row, rows, i * kColumns, kColumns, sums, kColumns) && fits;
  }
  return fits;
}

// Sums of a group's outputs, of Rows rows of bytes from `row` on.
template <class L, int Rows>
inline bool strip_of_bytes(const QuantizedProduct& p, std::int64_t group, std::int64_t row) {
  const Group<L> weight(p, group);
  const std::int64_t blocks = p.k / L::kBlock;
  const std::int8_t* x = p.x.bytes + row * p.k;
  const float *x_scale = p.x.scales + row * blocks, *x_sum = p.x.sums + row * blocks;
  const std::int32_t* start = p.x.starts + row * blocks;
  Vec sums[kSides][Rows];
  ATTN_UNROLL for (int side = 0; side < kSides; ++side) {
    ATTN_UNROLL for (int i = 0; i < Rows; ++i) sums[side][i] = splat(0.f);
  }
  for (std::int64_t block = 0; block < blocks; ++block) {
    for (int side = 0; side < kSides; ++side) {
      VecU word[L::kWords];
      Vec scale, least;
      weight.words(block, side, word);
      weight.scales(block, side, scale, least);
      ATTN_UNROLL for (int i = 0; i < Rows; ++i) {
        const std::int8_t* bytes = x + i * p.k + block * L::kBlock;
        const std::int64_t at = i * blocks + block;
        // Two sums, which do not wait for each other.
        VecI even = splat(start[at]), odd{};
        ATTN_UNROLL for (int j = 0; j < L::kWords; j += 2) {
          even = add_products<L::kFull>(even, word[j], bytes + 4 * j);
          odd = add_products<L::kFull>(odd, word[j + 1], bytes + 4 * j + 4);
        }
        const Vec whole = __builtin_convertvector(even + odd, Vec);
        sums[side][i] = whole * (scale * splat(x_scale[at])) + sums[side][i];
        if constexpr (L::kLeast) sums[side][i] = least * splat(x_sum[at]) + sums[side][i];
      }
    }
  }
  float line[Rows][kGroup];
  for (int i = 0; i < Rows; ++i) {
    for (int side = 0; side < kSides; ++side) store(line[i] + side * kLanes, sums[side][i]);
  }
  return write_sums(p, row, Rows, group * kGroup, kGroup, line[0], kGroup);
}

template <class L>
bool run_bytes(const QuantizedProduct& p, std::int64_t group_first, std::int64_t group_last, std::int64_t row,
               std::int64_t rows) {
  constexpr int most = kSides == 1 ? 8 : kSides == 2 ? 4 : 1;  // whose sums stay in registers
  bool fits = true;
  for (std::int64_t group = group_first; group < group_last; ++group) {
    std::int64_t i = 0;
    for (; most > 1 && i + most <= rows; i += most) fits = strip_of_bytes<L, most>(p, group, row + i) && fits;
    for (; i < rows; ++i) fits = strip_of_bytes<L, 1>(p, group, row + i) && fits;
  }
  return fits;
}

template <class L>
bool run_layout(const QuantizedProduct& p, std::int64_t task, void* scratch) {
  const std::int64_t chunks = ceil_div(p.m, kTaskRows), row = task % chunks * kTaskRows;
  const std::int64_t first = task / chunks * p.task_outputs, last = least_of(first + p.task_outputs, p.n);
  const std::int64_t rows = least_of(kTaskRows, p.m - row);
  if (p.a) {
    return run_floats<L>(p, first / kColumns, ceil_div(last, kColumns), row, rows, static_cast<float*>(scratch));
  }
  return run_bytes<L>(p, first / kGroup, ceil_div(last, kGroup), row, rows);
}

inline std::int64_t quantized_tasks(const QuantizedProduct& p) {
  return ceil_div(p.m, kTaskRows) * ceil_div(p.n, p.task_outputs);
}

inline bool run_quantized(const QuantizedProduct& p, std::int64_t task, void* scratch) {
  if (p.bits == 4) {
    if (p.nested) {
      return p.has_least ? run_layout<Layout<4, 32, true, true>>(p, task, scratch)
                         : run_layout<Layout<4, 32, true, false>>(p, task, scratch);
    }
    return p.has_least ? run_layout<Layout<4, 32, false, true>>(p, task, scratch)
                       : run_layout<Layout<4, 32, false, false>>(p, task, scratch);
  }
  if (p.block == 16) {
    return p.has_least ? run_layout<Layout<8, 16, true, true>>(p, task, scratch)
                       : run_layout<Layout<8, 16, true, false>>(p, task, scratch);
  }
  if (p.nested) return run_layout<Layout<8, 32, true, true>>(p, task, scratch);
  return p.has_least ? run_layout<Layout<8, 32, false, true>>(p, task, scratch)
                     : run_layout<Layout<8, 32, false, false>>(p, task, scratch);
}

// A row of x in bytes: whole numbers of a block's scale, the 127th of its largest magnitude. A block whose scale would
// leave the normal numbers is zeros; one with NaN or an infinity has the scale NaN.
inline void round_row(const QuantizedProduct& p, const float* from, std::int64_t row, const QuantizedRows& to) {
  const std::int64_t blocks = p.k / p.block;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const float* x = from + b * p.block;
    Vec most{}, rest{};
    for (int i = 0; i < p.block; i += kLanes) {
      const Vec value = load(x + i);
      most = max(reinterpret_cast<Vec>(reinterpret_cast<VecU>(value) & 0x7fffffffu), most);
      rest += value - value;  // NaN, of infinities and NaN
    }
    float lane[kLanes], largest = 0;
    store(lane, most);
    for (const float one : lane) largest = one > largest ? one : largest;
    const bool is_finite = sum_lanes(rest) == 0, is_zero = largest < 0x1p-100f;
    const float scale = is_zero ? 0 : largest / 127, each = is_zero || !is_finite ? 0 : 127 / largest;
    std::int8_t* bytes = to.bytes + row * p.k + b * p.block;
    VecI sums{};
    for (int i = 0; i < p.block; i += kLanes) {
      const Vec magic = splat(0x1.8p23f);  // adding it rounds to a whole number, ties to even
      const Vec value = is_finite ? load(x + i) * splat(each) : splat(0.f);
      const VecI whole = reinterpret_cast<VecI>(value + magic) - reinterpret_cast<VecI>(magic);
      store_bytes(bytes + i, whole);
      sums += whole;
    }
    std::int32_t sum = 0;
    for (int j = 0; j < kLanes; ++j) sum += sums[j];
    const std::int64_t at = row * blocks + b;
    to.scales[at] = is_finite ? scale : __builtin_nanf("");
    to.starts[at] = -p.zero * sum;
    to.sums[at] = to.scales[at] * static_cast<float>(sum);
  }
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
