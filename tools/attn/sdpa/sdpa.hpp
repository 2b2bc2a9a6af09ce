// attn sdpa: its flags, and what one process and several ranks share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "attn/attention.hpp"
#include "attn/distributed.hpp"

namespace attn::tool {

struct SdpaFlags {
  std::string q, k, v, mask, blocks, causal, relative_bias, scale, output, lse, save_weights, scheme = "auto";
  std::int64_t block_size = 64;
  std::uint64_t max_bytes = 0;
  std::optional<std::int64_t> query_offset, key_offset;
  double softcap = 0;
  std::int64_t relative_max_distance = 128;
  bool relative_one_sided = false, explain = false, json = false;
};

// (…, t, d) → (b, h, t, d), and back.
Tensor with_rank_4(Tensor tensor);
Tensor without_leading(Tensor tensor, std::size_t dims);

// --mask's, by its dtype. Throws Error (dtype) for another.
Mask mask_of(const Tensor& tensor);
// All options but --mask.
AttentionOptions options_of(const SdpaFlags& flags);

// On several ranks: each reads its own rows of the files, and writes those of the result. Rank 0 tells of it. Throws
// on all ranks.
void run_sdpa_over_ranks(const SdpaFlags& flags, distributed::Transport& ranks);

}  // namespace attn::tool
