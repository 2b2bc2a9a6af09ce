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
  static constexpr int kMost = kLevels || kBits == 8 ? 255 : kBits == 6 ? 63 : 15;  // of a code
  // Words of codes whose products add up in 16 bits; of codes above 127 the upper bit is multiplied apart.
  static constexpr int kFit = kMost == 255 ? 1 : 32767 / (2 * 127 * kMost), kRun = kFit < kWords ? kFit : kWords;
  static constexpr int kKinds = kLeast ? 2 : 1, kShared = kNested ? 256 : kBlock;
  static constexpr std::int64_t kHalves = 2 * kKinds * kGroup,                 // bytes of float16s
      kRecord = kHalves + (kNested ? kShared / kBlock * kKinds * kGroup : 0),  // of a run's scales
      kCodes = std::int64_t{kBlock} * kGroup * kBits / 8;                      // of a block
};

// A group of the weight's outputs.
template <class L>
class Group {
 public:
  Group() = default;
  Group(const QuantizedProduct& p, std::int64_t group)
      : codes_(p.codes + group * p.code_stride), scales_(p.scales + group * p.scale_stride) {
    if constexpr (L::kLevels) levels_ = all_words(p.levels);
  }

  // Words i and i + 1 of a block's codes, four of each output in a word. With `fetch` those of a later block follow.
  inline __attribute__((always_inline)) void two_words(std::int64_t block, int side, int i, VecU& first, VecU& second,
                                                       bool fetch) const {
    constexpr int next = kGroup * 4;  // bytes of a word of all outputs
    const std::uint8_t* at = codes_ + block * L::kCodes + side * kLanes * 4 + i / 4 * 2 * kGroup * L::kBits;
    if constexpr (L::kBits == 8) {
      first = load_words(at + i % 4 * next), second = load_words(at + (i % 4 + 1) * next);
    } else {
      const VecU both = load_words(at + i % 4 / 2 * next);
      first = both & 0x0f0f0f0fu, second = both >> 4 & 0x0f0f0f0fu;
      if constexpr (L::kLevels) first = look_up(levels_, first), second = look_up(levels_, second);
    }
    if constexpr (L::kBits == 6) {
      const VecU upper = load_words(at + 2 * next);
      first |= (i % 4 == 0 ? upper << 4 : upper) & 0x30303030u;
      second |= (i % 4 == 0 ? upper << 2 : upper >> 2) & 0x30303030u;
    }
    if (fetch) fetch_words(at + kAhead, i);
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
  static constexpr std::int64_t kAhead = L::kBits == 8 ? 4096 : 6144;

  // Fetches what two_words() will read of all outputs. The processor's own prefetching follows whole bytes nearly as
  // fast as memory where a vector takes a line of them; it follows shorter codes, and lines read in parts, more slowly.
  static inline __attribute__((always_inline)) void fetch_words(const std::uint8_t* at, int i) {
    if constexpr (L::kBits < 8) {
      prefetch<Cache::l1>(at + i % 4 / 2 * kCacheLine);
    } else if constexpr (kSides > 1) {
      prefetch<Cache::l1>(at + i % 4 * kCacheLine), prefetch<Cache::l1>(at + (i % 4 + 1) * kCacheLine);
    } else if (i == 0) {
      prefetch<Cache::l1>(at);
    }
  }

  const std::uint8_t *codes_ = nullptr, *scales_ = nullptr;
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
      ATTN_UNROLL for (int i = 0; i < L::kWords; i += 2) group.two_words(block, side, i, word[i], word[i + 1], true);
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

// A block's sums of Rows rows of bytes by Groups outputs' vectors of codes, added to what they are.
template <class L, int Rows, int Groups>
inline __attribute__((always_inline)) void add_block(const Group<L> (&weight)[Groups], std::int64_t block, int side,
                                                     const std::int8_t* x, std::int64_t step,
                                                     VecI (&sums)[Groups][Rows]) {
  constexpr bool kTwo = Rows * Groups < 4;  // few sums wait for each other less if there are two of each
  // One row waits for memory, which a second request for the same line hastens; several wait for their own work.
  const bool fetch = Rows == 1 || side == 0;
  VecI more[Groups][Rows] = {};
  ATTN_UNROLL for (int j = 0; j < L::kWords; j += 2) {
    VecU two[2][Groups];
    ATTN_UNROLL for (int g = 0; g < Groups; ++g) weight[g].two_words(block, side, j, two[0][g], two[1][g], fetch);
    ATTN_UNROLL for (int i = 0; i < Rows; ++i) {
      ATTN_UNROLL for (int g = 0; g < Groups; ++g) {
        VecI &sum = sums[g][i], &other = more[g][i];
        ATTN_UNROLL for (int w = 0; w < 2; ++w) {
          const std::int8_t* bytes = x + i * step + 4 * (j + w);
          VecI& to = kTwo && w == 1 ? other : sum;
          if constexpr (!kPairs) {
            to = add_products<L::kMost>(to, two[w][g], bytes);
          } else if constexpr (L::kRun == 1) {
            const VecI lower = add_products<127>(VecI{}, two[w][g] & 0x7f7f7f7fu, bytes);
            const VecI upper = add_products<128>(VecI{}, two[w][g] & 0x80808080u, bytes);
            to += pairs_summed(lower) + pairs_summed(upper);
          } else {
            other = add_products<L::kMost>((j + w) % L::kRun == 0 ? VecI{} : other, two[w][g], bytes);
            if ((j + w + 1) % L::kRun == 0) sum += pairs_summed(other);
          }
        }
      }
    }
  }
  if constexpr (kTwo && (!kPairs || L::kRun == 1)) {
    ATTN_UNROLL for (int g = 0; g < Groups; ++g) {
      ATTN_UNROLL for (int i = 0; i < Rows; ++i) sums[g][i] += more[g][i];
    }
  }
}

// Sums of the outputs of groups side by side, of Rows rows of bytes from `row` on.
template <class L, int Rows, int Groups>
inline bool strip_of_bytes(const QuantizedProduct& p, std::int64_t group, std::int64_t row) {
  // One row after the other where a block's codes stay in registers, and all rows' sums do not.
  constexpr int kAtOnce = kPairs ? 1 : Rows;
  Group<L> weight[Groups];
  for (int g = 0; g < Groups; ++g) weight[g] = Group<L>(p, group + g);
  const std::int64_t blocks = p.k / L::kBlock;
  const std::int8_t* x = p.x.bytes + row * p.k;
  const float *x_scale = p.x.scales + row * blocks, *x_sum = p.x.sums + row * blocks;
  const std::int32_t* start = p.x.starts + row * blocks;
  Vec sums[kSides][Groups][Rows] = {};
  for (std::int64_t block = 0; block < blocks; ++block) {
    for (int side = 0; side < kSides; ++side) {
      Vec scale[Groups], least[Groups];
      ATTN_UNROLL for (int g = 0; g < Groups; ++g) weight[g].scales(block, side, scale[g], least[g]);
      ATTN_UNROLL for (int first = 0; first < Rows; first += kAtOnce) {
        VecI whole[Groups][kAtOnce];
        ATTN_UNROLL for (int i = 0; i < kAtOnce; ++i) {
          const std::int32_t from = L::kLeast ? 0 : start[(first + i) * blocks + block];
          ATTN_UNROLL for (int g = 0; g < Groups; ++g) whole[g][i] = splat(from);
        }
        add_block<L>(weight, block, side, x + first * p.k + block * L::kBlock, p.k, whole);
        ATTN_UNROLL for (int i = 0; i < kAtOnce; ++i) {
          const std::int64_t at = (first + i) * blocks + block;
          ATTN_UNROLL for (int g = 0; g < Groups; ++g) {
            Vec& sum = sums[side][g][first + i];
            sum = __builtin_convertvector(whole[g][i], Vec) * (scale[g] * splat(x_scale[at])) + sum;
            if constexpr (L::kLeast) sum = least[g] * splat(x_sum[at]) + sum;
          }
        }
      }
    }
  }
  float line[Rows][Groups * kGroup];
  for (int i = 0; i < Rows; ++i) {
    for (int g = 0; g < Groups; ++g) {
      for (int side = 0; side < kSides; ++side) store(line[i] + g * kGroup + side * kLanes, sums[side][g][i]);
    }
  }
  return write_sums(p, row, Rows, group * kGroup, Groups * kGroup, line[0], Groups * kGroup);
}

// All rows, by strips of at most Rows of them, whose sums stay in registers. One row reads one group at a time: two are
// twice as many streams, which memory serves more slowly.
template <class L, int Rows, int Groups>
bool strips(const QuantizedProduct& p, std::int64_t group, std::int64_t row, std::int64_t rows) {
  bool fits = true;
  std::int64_t i = 0;
  if constexpr (Rows == 1 && Groups > 1) {
    for (int g = 0; g < Groups; ++g) fits = strips<L, 1, 1>(p, group + g, row, rows) && fits;
  } else {
    for (; i + Rows <= rows; i += Rows) fits = strip_of_bytes<L, Rows, Groups>(p, group, row + i) && fits;
    if constexpr (Rows > 1) {
      constexpr int kLess = Rows == 8 ? 4 : Rows > 2 ? 2 : 1;
      if (i < rows) fits = strips<L, kLess, Groups>(p, group, row + i, rows - i) && fits;
    }
  }
  return fits;
}

template <class L>
bool run_bytes(const QuantizedProduct& p, std::int64_t group_first, std::int64_t group_last, std::int64_t row,
               std::int64_t rows) {
  constexpr int kTogether = kSides == 1 && kDots ? 2 : 1;
  constexpr int kStrip = kTogether == 2 ? 6 : kSides == 1 ? 8 : kSides == 2 || kDots ? 4 : 1;
  bool fits = true;
  std::int64_t group = group_first;
  for (; group + kTogether <= group_last; group += kTogether)
    fits = strips<L, kStrip, kTogether>(p, group, row, rows) && fits;
  if (group < group_last) fits = strips<L, kStrip, 1>(p, group, row, rows) && fits;
  return fits;
}

template <class L>
bool run_layout(const QuantizedProduct& p, std::int64_t task, void* scratch) {
  const std::int64_t chunks = ceil_div(p.m, kTaskRows), row = task % chunks * kTaskRows;
  const std::int64_t first = task / chunks * p.task_outputs, last = least_of(first + p.task_outputs, p.n);
  const std::int64_t rows = least_of(kTaskRows, p.m - row);
  if (p.a || !kRowsInBytes) {
    return run_floats<L>(p, first / kColumns, ceil_div(last, kColumns), row, rows, static_cast<float*>(scratch));
  }
  return run_bytes<L>(p, first / kGroup, ceil_div(last, kGroup), row, rows);
}

inline std::int64_t quantized_tasks(const QuantizedProduct& p) {
  return ceil_div(p.m, kTaskRows) * ceil_div(p.n, p.task_outputs);
}

template <int kBits, int kBlock, bool kNested>
bool run_codes(const QuantizedProduct& p, std::int64_t task, void* scratch) {
  return p.has_least ? run_layout<Layout<kBits, kBlock, kNested, true>>(p, task, scratch)
                     : run_layout<Layout<kBits, kBlock, kNested, false>>(p, task, scratch);
}

inline bool run_quantized(const QuantizedProduct& p, std::int64_t task, void* scratch) {
  if (p.bits == 8) return run_codes<8, 32, false>(p, task, scratch);
  if (p.block == 16)
    return p.bits == 4 ? run_codes<4, 16, true>(p, task, scratch) : run_codes<6, 16, true>(p, task, scratch);
  if (p.nested)
    return p.bits == 4 ? run_codes<4, 32, true>(p, task, scratch) : run_codes<6, 32, true>(p, task, scratch);
  return p.bits == 4 ? run_codes<4, 32, false>(p, task, scratch) : run_codes<6, 32, false>(p, task, scratch);
}

// A row of x in bytes: whole numbers of a block's scale, the 127th of its largest magnitude. A block whose scale would
// leave the normal numbers is zeros; one with NaN or an infinity has the scale NaN.
inline void round_row(const QuantizedProduct& p, const float* from, std::int64_t row, const QuantizedRows& to) {
  const std::int64_t blocks = p.k / p.block;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const float* x = from + b * p.block;
    VecI most{};  // as bits, where NaN is above infinity, and that above all numbers
    for (int i = 0; i < p.block; i += kLanes) {
      const VecI magnitude = reinterpret_cast<VecI>(load(x + i)) & 0x7fffffff;
      most = max(magnitude, most);
    }
    most = over_lanes(most, [](VecI u, VecI v) { return max(u, v); });
    const float largest = reinterpret_cast<Vec>(most)[0];
    const bool is_finite = most[0] < 0x7f800000, is_zero = largest < 0x1p-100f;
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
    const std::int32_t sum = over_lanes(sums, [](VecI u, VecI v) { return u + v; })[0];
    const std::int64_t at = row * blocks + b;
    to.scales[at] = is_finite ? scale : __builtin_nanf("");
    to.starts[at] = -p.zero * sum;
    to.sums[at] = to.scales[at] * static_cast<float>(sum);
  }
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
