// The JSON header of a safetensors file.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "attn/tensor.hpp"
#include "io/bytes.hpp"

namespace attn::io {

// One tensor's claim on the data, not yet compared with the data or with the other claims.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  Extent extent;
  std::uint64_t begin = 0, end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of the header
  std::map<std::string, std::string> metadata;
};

inline constexpr std::string_view kMetadataKey = "__metadata__";

std::string_view safetensors_name(DType dtype) noexcept;
SafetensorsHeader parse_safetensors_header(std::string_view json, const Origin& origin);

}  // namespace attn::io
