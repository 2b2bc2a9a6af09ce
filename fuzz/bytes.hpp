// Choices out of the fuzzer's bytes; past their end every choice is the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string_view>

namespace attn::fuzz {

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  bool empty() const { return rest_.empty(); }
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const std::uint8_t first = rest_.front();
    rest_ = rest_.subspan(1);
    return first;
  }
  std::uint64_t word() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }
  // Reads a number from `low` to `high`, which are less than 2^16 apart.
  std::int64_t number(std::int64_t low, std::int64_t high) {
    const auto wide = static_cast<std::uint64_t>(high - low) + 1;
    std::uint64_t value = byte();
    if (wide > 256) value = value << 8 | byte();
    return low + static_cast<std::int64_t>(value % wide);
  }
  template <class T>
  T one_of(std::initializer_list<T> all) {
    return all.begin()[number(0, static_cast<std::int64_t>(all.size()) - 1)];
  }
  bool yes() { return (byte() & 1) != 0; }

  // Up to the next zero byte, which is passed over.
  std::string_view text() {
    const std::string_view all(reinterpret_cast<const char*>(rest_.data()), rest_.size());
    const std::string_view part = all.substr(0, all.find('\0'));
    rest_ = rest_.subspan(part.size() < rest_.size() ? part.size() + 1 : part.size());
    return part;
  }
  std::span<const std::uint8_t> take(std::size_t size) {
    const auto part = rest_.first(size < rest_.size() ? size : rest_.size());
    rest_ = rest_.subspan(part.size());
    return part;
  }
  std::span<const std::uint8_t> rest() const { return rest_; }

 private:
  std::span<const std::uint8_t> rest_;
};

}  // namespace attn::fuzz
