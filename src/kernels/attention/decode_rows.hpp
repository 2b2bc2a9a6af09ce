// The rows that decode reads, in their order, and how a load of their elements becomes floats.
#pragma once

#include "kernels/attention/key_rows.hpp"
#include "kernels/workspace.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

inline std::int64_t pad_lanes(std::int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

constexpr std::int64_t kChunkKeys = 512;  // keys of a task
constexpr std::int64_t kStepKeys = 256;   // keys whose scores are at hand at once
constexpr std::int64_t kKeysInL1 = 64;    // keys, or values, that stay in L1 for all queries
constexpr std::int64_t kUnitKeys = 16;    // keys in a row
constexpr std::int64_t kStreams = 4;      // a block's units, each from another part of the step
constexpr std::int64_t kStepUnits = kStepKeys / kUnitKeys;
constexpr std::int64_t kMostSpan = 64;  // elements that a load may take

// Reads rows as they are stored, for each element: a load takes kSpan elements, which become kParts vectors; lane l of
// part i is element place(i, l) of them.
struct StoredF32 {
  static constexpr int kParts = 1, kBytes = 4, kSpan = kLanes;
  static constexpr int place(int, int lane) { return lane; }
  static inline __attribute__((always_inline)) void widen(const char* p, Vec (&parts)[kParts]) {
    __builtin_memcpy(&parts[0], p, sizeof parts[0]);
  }
};

// Two to a lane: a shift brings the even ones, a mask the odd ones to where float32 has its upper half.
struct StoredBf16 {
  static constexpr int kParts = 2, kBytes = 2, kSpan = 2 * kLanes;
  static constexpr int place(int part, int lane) { return 2 * lane + part; }
  static inline __attribute__((always_inline)) void widen(const char* p, Vec (&parts)[kParts]) {
    VecU pairs;
    __builtin_memcpy(&pairs, p, sizeof pairs);
    parts[0] = reinterpret_cast<Vec>(pairs << 16);
    parts[1] = reinterpret_cast<Vec>(pairs & 0xffff0000u);
  }
};

struct StoredF16 {
  static constexpr int kParts = 1, kBytes = 2, kSpan = kLanes;
  static constexpr int place(int, int lane) { return lane; }
  static inline __attribute__((always_inline)) void widen(const char* p, Vec (&parts)[kParts]) {
    parts[0] = halves_at(p);
  }
};

struct StoredI8 {
  static constexpr int kParts = 1, kBytes = 1, kSpan = kLanes;
  static constexpr int place(int, int lane) { return lane; }
  static inline __attribute__((always_inline)) void widen(const char* p, Vec (&parts)[kParts]) {
    parts[0] = byte_lanes(reinterpret_cast<const std::int8_t*>(p));
  }
};

// A row of `width` elements as whole loads; the last one begins earlier, at elements that were loaded before, rather
// than reach past the row. A row shorter than a load is copied to where it may.
template <class E>
struct Loads {
  std::int64_t width, count;

  explicit Loads(std::int64_t elements) : width(elements), count((elements + E::kSpan - 1) / E::kSpan) {}

  bool narrow() const { return width < E::kSpan; }
  std::int64_t floats() const { return count * E::kParts * kLanes; }  // of a row, widened
  // The first element of load i.
  std::int64_t begin(std::int64_t i) const { return i + 1 < count || narrow() ? i * E::kSpan : width - E::kSpan; }

  // Packed as loads bring them, a vector every `step` floats: each element once, zeros where it comes again. line has
  // kSpan elements at least.
  void pack(float* line, float* packed, std::int64_t step) const {
    for (std::int64_t e = width; e < E::kSpan; ++e) line[e] = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      for (int part = 0; part < E::kParts; ++part) {
        float* out = packed + (i * E::kParts + part) * step;
        for (int lane = 0; lane < kLanes; ++lane) out[lane] = line[begin(i) + E::place(part, lane)];
        for (int lane = 0; lane < kLanes; ++lane) {
          if (begin(i) + E::place(part, lane) < i * E::kSpan) out[lane] = 0;
        }
      }
    }
  }

  // The reverse; writes kSpan elements at least.
  void unpack(const float* packed, float* line) const {
    for (std::int64_t i = 0; i < count; ++i) {
      for (int part = 0; part < E::kParts; ++part) {
        const float* in = packed + (i * E::kParts + part) * kLanes;
        for (int lane = 0; lane < kLanes; ++lane) line[begin(i) + E::place(part, lane)] = in[lane];
      }
    }
  }
};

// Units of a step in the order in which they are read: one from each quarter in turn, as memory is faster from several
// pages at once.
struct Units {
  const char** rows;          // kUnitKeys of each
  const std::int64_t* place;  // their first keys, in the step
  std::int64_t count, keys;   // units; keys of the step

  std::int64_t rows_of(std::int64_t unit) const {
    const std::int64_t left = keys - place[unit];
    return left < kUnitKeys ? left : kUnitKeys;
  }
  Units block(std::int64_t first) const {
    const std::int64_t left = count - first;
    return {rows + first * kUnitKeys, place + first, left < kStreams ? left : kStreams, keys};
  }
  // The row to fetch while row i of a block is read: of the block after it, each unit in turn.
  const char* ahead(std::int64_t i) const { return rows[kKeysInL1 + i % kStreams * kUnitKeys + i / kStreams]; }
};

// Where a chunk's rows lie, in the order in which they are read: the keys of a step, its values, the keys of the next
// step, …. Pages cost no more than this list, and what is to be fetched is found further on in it.
struct RowList {
  std::int64_t used = 0;
  const char* at[2 * kChunkKeys + 3 * kKeysInL1];

  // `count` keys, or values, from `first` on, made up to a unit by the last one. Those of i8 have scales.
  void add(const Problem& p, const KeyRows& all, const Span& span, std::int64_t first, std::int64_t count,
           float* scales) {
    for_each_run(p, all, span, first, count, [&](const RowRun& run, std::int64_t j) {
      list(run, at + used + j);
      if (run.scales) __builtin_memcpy(scales + j, run.scales, static_cast<std::size_t>(run.count) * sizeof(float));
    });
    for (std::int64_t j = count; j < kUnitKeys; ++j) at[used + j] = at[used + count - 1], scales[j] = 0;
    used += kUnitKeys;
  }

  void close() {
    for (std::int64_t j = 0; j < 2 * kKeysInL1; ++j) at[used + j] = at[used - 1];
  }

 private:
  // Nearly always a whole unit, which vectors do.
  static void list(const RowRun& run, const char** at) {
    if (run.count == kUnitKeys) {
      ATTN_UNROLL for (std::int64_t j = 0; j < kUnitKeys; ++j) at[j] = run.row(j);
    } else {
      for (std::int64_t j = 0; j < run.count; ++j) at[j] = run.row(j);
    }
  }
};

// Rows shorter than a load, copied to `buffer`, zeros behind them.
template <class E>
inline void copy_narrow(const Loads<E>& loads, const char** rows, std::int64_t count, char* buffer) {
  for (std::int64_t j = 0; j < count; ++j) {
    char* copy = buffer + j * E::kSpan * E::kBytes;
    for (std::int64_t i = 0; i < E::kSpan * E::kBytes; ++i) copy[i] = i < loads.width * E::kBytes ? rows[j][i] : '\0';
    rows[j] = copy;
  }
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
