// The mask column: none, or parts joined by "+".
//
//   causal, causal-br   the diagonal from the top left, or to the bottom right
//   window=N            the last N keys before the query and itself
//   lengths             batch item i of b has (i + 1) / b of the keys
//   keep, bias          a boolean mask that keeps half, a float one; (1, 1, tq, tk)
//   blocks=P            blocks of 128 queries and 128 keys, of which a share P is kept
//   alibi, sinks        one a head
//   relative            32 buckets of distances, as T5's
//   score               ALiBi again, as a user's function of the scores
//   softcap=C
//   dropout=P           drawn where it is needed, by Philox; dropout-keep=P: from a mask in memory
#pragma once

#include <string>

#include "attn/attention.hpp"
#include "bench/inputs.hpp"

namespace attn::tool {

struct AttentionSizes {
  std::int64_t b = 1, hq = 1, hkv = 1, tq = 1, tk = 1, d = 1, dv = 1;
};

// Throws Error (data) for a part that is not above.
AttentionOptions mask_options(const std::string& mask, const AttentionSizes& sizes, BenchInputs& inputs);
// How much of the (tq, tk) scores the causal diagonal, windows, lengths and blocks leave: 1 without a mask, exactly one
// half for a square causal mask, as the field counts it.
double seen_share(const AttentionOptions& options, const AttentionSizes& sizes);

}  // namespace attn::tool
