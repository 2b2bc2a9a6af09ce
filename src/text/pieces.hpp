// The pieces that byte-level BPE merges within.
#pragma once

#include <cstddef>
#include <string_view>

namespace attn::text {

// Bytes of the first piece of `text`, which is not empty; see gpt2_pieces().
std::size_t piece_length(std::string_view text);

}  // namespace attn::text
