// A bias by distance that is learned: Raffel et al. 2020, "Exploring the Limits of Transfer Learning" (T5),
// section 2.1.
#pragma once

#include <cstdint>

#include "attn/tensor.hpp"

namespace attn {

// A number for each bucket of distances and each head, which is added to the head's scores. The distance is the key's
// position less the query's own, as for ALiBi.
struct RelativeBias {
  Tensor table = {};  // floating (buckets, hq); undefined: no such bias
  // Half of the buckets are for keys behind the query's own position. Else those are all in bucket 0.
  bool bidirectional = true;
  std::int64_t max_distance = 128;  // from here on all distances are in the last bucket; at most 2^20
};

// The nearest distances have a bucket each, half of those on their side; farther ones share the rest, whose widths grow
// logarithmically up to max_distance. Of an odd number in both directions the last has none, as in T5. Throws Error
// (argument) for fewer than 4 buckets in both directions, fewer than 2 in one, or max_distance not past the distances
// of a bucket each.
std::int64_t relative_bucket(std::int64_t distance, std::int64_t buckets, bool bidirectional,
                             std::int64_t max_distance = 128);

}  // namespace attn
