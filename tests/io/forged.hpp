// Files that claim what they like.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attn::test::forged {

inline std::string number(std::uint64_t value, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

inline std::uint32_t crc32(std::string_view bytes) {
  std::uint32_t crc = 0xffffffffu;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

// One stored member, with claims about it that may be lies.
struct Member {
  std::string name, data;
  std::uint32_t compressed_size, size, crc;
  std::uint16_t method = 0;
  std::string extra = {};  // of the directory alone
};
inline Member honest(const std::string& name, const std::string& data) {
  const auto size = static_cast<std::uint32_t>(data.size());
  return {name, data, size, size, crc32(data)};
}

inline std::string zip(const std::vector<Member>& members) {
  std::string body, directory;
  for (const Member& m : members) {
    const std::string common = number(20, 2) + number(0x800, 2) + number(m.method, 2) + number(0x210000, 4) +
                               number(m.crc, 4) + number(m.compressed_size, 4) + number(m.size, 4) +
                               number(m.name.size(), 2) + number(0, 2);
    directory += "PK\x01\x02" + number(20, 2) + common.substr(0, common.size() - 2) + number(m.extra.size(), 2) +
                 std::string(10, '\0') + number(body.size(), 4) + m.name + m.extra;
    body += "PK\x03\x04" + common + m.name + m.data;
  }
  return body + directory + "PK\x05\x06" + number(0, 4) + number(members.size(), 2) + number(members.size(), 2) +
         number(directory.size(), 4) + number(body.size(), 4) + number(0, 2);
}

// ---- safetensors

inline std::string with_length(std::uint64_t length, const std::string& header, const std::string& data = {}) {
  return number(length, 8) + header + data;
}
inline std::string file(const std::string& header, const std::string& data = {}) {
  return with_length(header.size(), header, data);
}
// One entry named `name`.
inline std::string entry(const std::string& name, const std::string& shape, const std::string& offsets,
                         const std::string& dtype = "F32") {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

// ---- npy

// An array of version 1.0 with any dict and data.
inline std::string npy(const std::string& dict, const std::string& data) {
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(dict.size() & 0xff) +
         static_cast<char>(dict.size() >> 8) + dict + data;
}
inline std::string dict(const std::string& descr, const std::string& fortran, const std::string& shape) {
  return "{'descr': " + descr + ", 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

}  // namespace attn::test::forged
