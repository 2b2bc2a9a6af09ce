// A GgufHeader is what stands before the elements of a GGUF file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attn/gguf.hpp"
#include "io/bytes.hpp"

namespace attn::io {

inline constexpr std::string_view kGgufMagic = "GGUF";

struct GgufHeader {
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<GgufTensor> tensors;
};

// Reads the header of a file of `file_bytes` from its first bytes; returns none where these are too few.
std::optional<GgufHeader> parse_gguf_header(Bytes first, std::uint64_t file_bytes, const Origin& origin);

}  // namespace attn::io
