// Attention and its gradients, written from the definition: plain loops in double over plain arrays. It includes
// nothing of the library, so that no mistake can be on both sides of a comparison.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace oracle {

// Over (b, h, i, j), or (b, h, block of i, block of j); a size of 1 stands for every index. Without values: none.
struct Grid {
  std::array<std::int64_t, 4> size{1, 1, 1, 1};
  std::vector<double> values;

  bool defined() const { return !values.empty(); }
  std::size_t place(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
  double at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const { return values[place(b, h, i, j)]; }
};

// A learned number for each bucket of distances and each head (Raffel et al. 2020, "T5"), (buckets, hq); none without.
struct Relative {
  std::vector<double> values;
  std::int64_t buckets = 0, max_distance = 128;
  bool bidirectional = true;

  // The nearest distances have a bucket each, half of those of their side; the others share the rest by their
  // logarithm, which float32 rounds as in T5.
  std::int64_t bucket(std::int64_t distance) const;
};

using OfScore = std::function<double(double score, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)>;

// The operator's inputs and options, as include/attn/attention.hpp describes them.
struct Problem {
  std::int64_t batch = 0, query_heads = 0, key_heads = 0, queries = 0, keys = 0, depth = 0, value_depth = 0;
  std::vector<double> q, k, v;  // (b, hq, tq, d), (b, hkv, tk, d), (b, hkv, tk, dv), row-major
  double scale = 1, softcap = 0;
  bool causal = false, bottom_right = false;
  std::int64_t window_left = -1, window_right = -1;
  std::vector<std::int64_t> key_lengths;               // (b), or none
  std::vector<std::int64_t> query_starts, key_starts;  // cumulative, or none
  std::vector<std::int64_t> query_offset, key_offset;  // (b), positions of the first query and key; both, or none
  Grid keep, bias, block_keep, dropout_keep;
  std::int64_t block_query = 1, block_key = 1;
  std::vector<double> slopes, sinks;  // (hq), or none
  Relative relative;
  double dropout = 0;
  OfScore change, change_slope;  // the score function and its derivative, or none
  // These describe the computation that is compared, for the sizes below alone: its roundoff of products and weights,
  // and of scores; how much its outputs are rounded near zero, and the largest of them.
  double roundoff = 0x1p-24, score_roundoff = 0x1p-24, least = 0, most = 1e38;
  // Kernels may take the rows of an int8 cache in fixed point: a query's numbers in units of its largest, and weighted
  // values in units of the largest of them.
  bool fixed_point = false;
  // Says nothing of rows that see NaN, infinities, or scores past float32's range, nor of gradients to which such a row
  // adds: which of them are NaN then depends on the order of sums. What is hidden must not count all the same.
  bool only_hidden_specials = false;

  // The numbers that dropout and score functions know a query and a key by.
  std::int64_t query_number(std::int64_t b, std::int64_t i) const;
  std::int64_t key_number(std::int64_t b, std::int64_t j) const;
  // Returns whether a query sees a key: position, lengths, sequences, boolean and block masks forbid it, and so does a
  // bias of -inf. Score functions do not.
  bool sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
};

// A number, and the size that its rounding error is measured by: the sum of its terms' magnitudes, each times what the
// error of its row's scores does to a weight. A computation is right within a few roundoff · size. A size of NaN says
// that nothing is known: an infinity or NaN has a weight that float32 may take for zero, or that dropout or a score
// function took away.
struct Number {
  double value = 0, size = 0;
};
using Numbers = std::vector<Number>;

struct Result {
  Numbers output, lse, weights;  // (b, hq, tq, dv), (b, hq, tq), (b, hq, tq, tk)
};
Result attention(const Problem& p);

struct Gradient {
  Numbers q, k, v, bias, sinks, relative;  // bias in its own (broadcast) sizes
};
Gradient gradient(const Problem& p, const std::vector<double>& d_output);

// Returns which weights dropout keeps by a key: those where word j % 4 of Philox4x32-10 (Salmon et al. 2011, "Parallel
// random numbers: as easy as 1, 2, 3") at counter (j / 4, i, h, b) is at least p · 2^32; i and j are numbers as above.
Grid philox_keep(const Problem& p, std::uint64_t key);

}  // namespace oracle
