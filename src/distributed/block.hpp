// Parts of a problem: runs of queries against runs of keys, and some of the heads, with the options that say so.
#pragma once

#include "distributed/call.hpp"

namespace attn::distributed {

// The keys of `keys` that some query of `queries` sees, as far as positions, lengths and packed sequences tell.
Run seen(const Problem& problem, const AttentionOptions& options, Run queries, Run keys);

// The options for a run of queries, whose rows in the masks begin at `mask_row`, against a run of keys. Without sinks.
AttentionOptions of_block(const Problem& problem, const AttentionOptions& options, Run queries, std::int64_t mask_row,
                          Run keys);

struct Heads {
  std::int64_t first, last;  // key heads

  std::int64_t count() const { return last - first; }
};
// Key heads 0 to `heads` in `pieces` even runs.
Heads share_of_heads(std::int64_t heads, std::int64_t pieces, std::int64_t i);
AttentionOptions of_heads(const Problem& problem, const AttentionOptions& options, Heads heads);
// Their heads of a tensor (b, hkv, …), or of one by query heads.
Tensor key_heads(const Tensor& t, Heads heads);
Tensor query_heads(const Problem& problem, const Tensor& t, Heads heads);
// The same of a mask, whose one head is every head's.
Tensor mask_heads(const Problem& problem, const Tensor& t, Heads heads);

// The parts of a run between the borders of packed sequences; without these (undefined) the run.
std::vector<Run> within_sequences(const Tensor& starts, Run run);

// sum += part, float64, on all threads.
void add_to(const Tensor& sum, const Tensor& part);

}  // namespace attn::distributed
