// A GGUF file whose values and tensors can be changed one by one and written again: it then says what it was told to
// say, also where that is wrong. For tests and fuzzers, on little-endian machines.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "attn/gguf.hpp"

namespace attn::test {

class GgufBytes {
 public:
  struct Entry {
    std::string name;
    std::vector<std::uint64_t> sizes;  // in the file's order, those of a row first
    std::uint32_t type = 0;
    std::uint64_t begin = 0;  // in the data
  };

  // Throws Error where Gguf::parse() does.
  explicit GgufBytes(std::string_view file) {
    const auto read = io::Gguf::parse(std::as_bytes(std::span(file.data(), file.size())), "x");
    for (const auto& [key, value] : read.metadata()) metadata.emplace(key, value);
    for (const io::GgufTensor& t : read.tensors()) {
      std::vector<std::uint64_t> sizes;
      for (std::size_t i = t.shape.size(); i-- > 0;) sizes.push_back(static_cast<std::uint64_t>(t.shape[i]));
      tensors.push_back({t.name, sizes, static_cast<std::uint32_t>(t.type), data.size()});
      data += file.substr(t.begin, t.bytes);
      data.resize((data.size() + kAlignment - 1) / kAlignment * kAlignment);
    }
  }

  std::string str() const {
    std::string out = "GGUF";
    put(out, std::uint32_t{3});
    put(out, static_cast<std::uint64_t>(tensors.size()));
    put(out, static_cast<std::uint64_t>(metadata.size()));
    for (const auto& [key, value] : metadata) {
      put(out, key);
      std::visit([&](const auto& v) { put_value(out, v); }, value);
    }
    for (const Entry& t : tensors) {
      put(out, t.name);
      put(out, static_cast<std::uint32_t>(t.sizes.size()));
      for (const std::uint64_t size : t.sizes) put(out, size);
      put(out, t.type);
      put(out, t.begin);
    }
    out.resize((out.size() + kAlignment - 1) / kAlignment * kAlignment);
    return out + data;
  }

  std::map<std::string, io::GgufValue> metadata;
  std::vector<Entry> tensors;
  std::string data;

 private:
  static constexpr std::size_t kAlignment = 32;

  template <class T>
  static void put(std::string& out, const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      put(out, static_cast<std::uint64_t>(value.size()));
      out += value;
    } else {
      char bytes[sizeof value];
      std::memcpy(bytes, &value, sizeof value);
      out.append(bytes, sizeof value);
    }
  }

  template <class T>
  static constexpr std::uint32_t kKind =  // as the format numbers them
      std::is_same_v<T, bool>           ? 7
      : std::is_same_v<T, std::string>  ? 8
      : std::is_same_v<T, std::int64_t> ? 11
                                        : 12;

  template <class T>
  static void put_value(std::string& out, const T& value) {
    put(out, kKind<T>);
    put(out, value);
  }
  template <class T>
  static void put_value(std::string& out, const std::vector<T>& values) {
    put(out, std::uint32_t{9});
    put(out, kKind<T>);
    put(out, static_cast<std::uint64_t>(values.size()));
    for (const T value : values) put(out, value);
  }
  static void put_value(std::string& out, const std::vector<std::string>& values) {
    put(out, std::uint32_t{9});
    put(out, kKind<std::string>);
    put(out, static_cast<std::uint64_t>(values.size()));
    for (const std::string& value : values) put(out, value);
  }
};

}  // namespace attn::test
