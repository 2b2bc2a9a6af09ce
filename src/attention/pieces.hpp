// A batch as the problems that it is made of: a run of items alike, or one sequence of a packed batch. Each is computed
// as if it were alone, so that the lengths of its neighbours change none of its bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "attention/validate.hpp"

namespace attn {

struct Piece {
  std::int64_t batch, batches;  // its first item, and how many
  std::int64_t query, tq;       // its first query in the tensors, and how many
  std::int64_t key, tk;
  std::int64_t shift;                     // query i of it stands at its key i + shift, which need not be there
  std::int64_t query_offset, key_offset;  // positions of the tensors' first query and key
  std::int64_t left, right;               // keys that a query sees before and behind its own; kEvery: all of them

  // More than any two positions are apart, and far from where sums of positions overflow.
  static constexpr std::int64_t kEvery = std::int64_t{1} << 40;

  std::int64_t centre(std::int64_t i) const { return i + shift; }

  struct Keys {
    std::int64_t first, last;
  };
  // The keys that query i sees are [first, last) of the piece's.
  Keys seen(std::int64_t i) const {
    const std::int64_t first = std::clamp<std::int64_t>(centre(i) - left, 0, tk);
    return {first, std::clamp<std::int64_t>(centre(i) + right + 1, first, tk)};
  }

  bool has_window() const { return left < kEvery && right < kEvery; }
};

// In the tensors' order; together they have all queries. tq and tk are below 2^30 (validate() sees to it).
std::pmr::vector<Piece> pieces(const Sizes& p, const AttentionOptions& options,
                               std::pmr::memory_resource* memory = std::pmr::get_default_resource());

// (b or 1, 1, tq, tk) boolean: which keys a query sees. For the composed path.
Tensor seen_keys(const Sizes& p, const AttentionOptions& options);

// (b or 1, 1, tq, tk) int64: how far each key is past the query's own position.
Tensor distances(const Sizes& p, const AttentionOptions& options);

// (b or 1, hq, tq, tk) float64: -slope · |centre - j|.
Tensor alibi_bias(const Sizes& p, const AttentionOptions& options);

}  // namespace attn
