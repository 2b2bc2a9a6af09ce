// Ranks have results of the same queries, each over keys of its own; here they are merged.
#pragma once

#include "distributed/partial.hpp"

namespace attn::distributed {

// Merges the ranks' results, output (b, h, t, dv) of float32 or float64 and lse (b, h, t) of float64. Each rank merges
// its share of the rows and sends it to all, so that all have the same bits.
Partial merged_over_ranks(Transport& transport, const AttentionResult& own);

}  // namespace attn::distributed
