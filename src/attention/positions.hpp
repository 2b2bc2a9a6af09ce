// Where each query stands among the keys: what causal masks, windows, lengths, packed sequences and ALiBi have
// in common. All of them let a query see one run of keys.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/validate.hpp"

namespace attn {

struct Positions {
  std::vector<std::int32_t> memory;  // of the five below, in one allocation
  // Of query i of batch item b, at b · tq + i, or at i when all batch items are alike:
  std::int32_t *begin, *end;   // the keys of its own sequence
  std::int32_t* centre;        // the key at its own position; may lie outside [begin, end)
  std::int32_t *first, *last;  // the keys that it sees: [first, last)
  std::size_t count;           // of each
  bool per_batch;

  Positions(std::size_t queries, bool by_batch)
      : memory(5 * queries),
        begin(memory.data()),
        end(begin + queries),
        centre(end + queries),
        first(centre + queries),
        last(first + queries),
        count(queries),
        per_batch(by_batch) {}
  Positions(Positions&&) = default;  // a moved vector keeps its memory

  std::size_t index(const Problem& p, std::int64_t b, std::int64_t i) const {
    return static_cast<std::size_t>((per_batch ? b * p.tq : 0) + i);
  }
};

// tk and tq below 2^30 (validate() sees to it).
Positions positions(const Problem& p, const Mask& mask);

// (b or 1, 1, tq, tk) boolean: the same, cell by cell from each part's own rule. For the composed path.
Tensor seen_keys(const Problem& p, const Mask& mask);

// (b or 1, hq, tq, tk) float64: -slope · |centre - j|.
Tensor alibi_bias(const Problem& p, const Mask& mask, const Tensor& slopes);

}  // namespace attn
