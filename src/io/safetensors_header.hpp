// The JSON header of a safetensors file.
#pragma once

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

inline constexpr std::size_t kSafetensorsLengthBytes = 8;  // of the header's length, which the file begins with
inline constexpr std::uint64_t kMostSafetensorsHeader = 100'000'000;
inline constexpr std::string_view kMetadataKey = "__metadata__";

std::string_view safetensors_name(DType dtype) noexcept;
// The header's length, of a file that begins with `first`, 8 bytes at least.
std::uint64_t safetensors_header_length(Bytes first, std::uint64_t file_bytes, const Origin& origin);
SafetensorsHeader parse_safetensors_header(std::string_view json, const Origin& origin);
// Sorts the entries by their place, and requires that every byte of the data belongs to one of them.
void check_safetensors_layout(SafetensorsHeader& header, std::uint64_t data_size, const Origin& origin);

}  // namespace attn::io
