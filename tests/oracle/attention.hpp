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
  Grid keep, bias, block_keep, dropout_keep;
  std::int64_t block_query = 1, block_key = 1;
  std::vector<double> slopes, sinks;  // (hq), or none
  double dropout = 0;
  OfScore change, change_slope;  // the score function and its derivative, or none
  // Of the computation that is compared: roundoff of products and weights, and of scores; half of the smallest number
  // of its outputs. For the sizes below alone.
  double roundoff = 0x1p-24, score_roundoff = 0x1p-24, least = 0;

  // By position, lengths, sequences, boolean and block masks; a bias of -inf forbids likewise.
  bool sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
};

// A number, and the size that its rounding error is measured by: the sum of its terms' magnitudes, each times what the
// error of its row's scores does to a weight. A computation is right within a few roundoff · size.
struct Number {
  double value = 0, size = 0;
};
using Numbers = std::vector<Number>;

struct Result {
  Numbers output, lse, weights;  // (b, hq, tq, dv), (b, hq, tq), (b, hq, tq, tk)
};
Result attention(const Problem& p);

struct Gradient {
  Numbers q, k, v, bias, sinks;  // bias in its own (broadcast) sizes
};
Gradient gradient(const Problem& p, const std::vector<double>& d_output);

// Which weights dropout keeps by a key: word j % 4 of Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as
// easy as 1, 2, 3") at counter (j / 4, i, h, b) is at least p · 2^32.
Grid philox_keep(const Problem& p, std::uint64_t key);

}  // namespace oracle
