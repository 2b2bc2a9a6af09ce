// A score function is handed some scores, in cache, and where they belong. It is plain C data, so that a function
// compiled anywhere (C, Rust, numba's cfunc) can take it.
#pragma once

#include <cstdint>

namespace attn {

// Scores of `keys` keys (rows) against `queries` queries (columns) of one batch item. The score of row r and column c
// is scores[r · key_step + c · query_step]: key first_key + r against query tokens[c] of query head heads[c]. How a
// call is cut into tiles differs from processor to processor.
template <class T>
struct ScoreTileOf {
  T* scores;
  std::int64_t key_step, query_step;  // in elements; in the kernels query_step is 1
  std::int64_t keys, queries;
  std::int64_t batch, first_key;
  const std::int32_t *heads, *tokens;  // (queries)
};

using ScoreTile = ScoreTileOf<float>;
using ScoreTile64 = ScoreTileOf<double>;  // of float64 inputs

// A forward function replaces every score. A backward function finds the old scores in `before`, and the gradient of
// the new scores in d_scores, laid out as before->scores. It turns that into the gradient of the old scores.
using ScoreForward = void (*)(const ScoreTile* tile, void* user);
using ScoreBackward = void (*)(const ScoreTile* before, float* d_scores, void* user);
using ScoreForward64 = void (*)(const ScoreTile64* tile, void* user);
using ScoreBackward64 = void (*)(const ScoreTile64* before, double* d_scores, void* user);

}  // namespace attn
