// Values of a GGUF file by their keys, of the kind that is expected.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "attn/gguf.hpp"
#include "io/bytes.hpp"

namespace attn {

class GgufMetadata {
 public:
  GgufMetadata(const io::Gguf& file, io::Origin origin) : file_(file), origin_(origin) {}

  // Keys are then looked for with it first, and as they are.
  void set_prefix(std::string_view architecture) { prefix_ = std::string(architecture) + "."; }
  const io::Origin& origin() const noexcept { return origin_; }

  // All throw Error (data) for a value of another kind, or one that is missing and has no other.
  std::string text(const std::string& key) const { return std::get<std::string>(get<std::string>(key, {})); }
  std::string text_or(const std::string& key, const std::string& otherwise) const {
    return std::get<std::string>(get<std::string>(key, otherwise));
  }
  std::int64_t whole(const std::string& key, std::optional<std::int64_t> otherwise = {}) const {
    std::optional<io::GgufValue> value;
    if (otherwise) value = *otherwise;
    return std::get<std::int64_t>(get<std::int64_t>(key, value));
  }
  double number(const std::string& key, double otherwise) const {
    const double value = std::get<double>(get<double>(key, otherwise));
    // A config.json has no others: such a number would be gone, and its key's default in its place.
    if (!std::isfinite(value)) origin_.fail("a finite number " + prefix_ + key, std::to_string(value));
    return value;
  }

 private:
  template <class T>
  io::GgufValue get(const std::string& key, const std::optional<io::GgufValue>& otherwise) const {
    auto at = file_.metadata().find(prefix_ + key);
    if (at == file_.metadata().end()) at = file_.metadata().find(key);
    if (at == file_.metadata().end()) {
      if (!otherwise) origin_.fail("a value " + prefix_ + key, "none");
      return *otherwise;
    }
    if (!std::holds_alternative<T>(at->second)) {
      origin_.fail(at->first + " of another kind", io::in_quotes(io::text_of(at->second)));
    }
    return at->second;
  }

  const io::Gguf& file_;
  io::Origin origin_;
  std::string prefix_;
};

}  // namespace attn
