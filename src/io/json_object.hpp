// An object of JSON that nobody vouches for: each value by its key, of the kind that is expected. null stands for a
// missing key.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "io/bytes.hpp"

namespace attn::io {

// Keys that a reader may pass over, and why.
struct PassedOver {
  std::string_view keys;    // parted by blanks; "summary_*" stands for all that begin so
  std::string_view values;  // a list in JSON of those that change nothing; empty where no value does
  std::string_view reason;
};

// Throws Error (data) that names line and column of the byte, which parsers count from 1.
[[noreturn]] void fail_json(std::string_view text, std::size_t byte, const Origin& origin);
// Throws where the text begins with a byte order mark, which JSON does not have and parsers pass over, or has a zero
// byte: they take it for the end and would not look behind it.
void require_plain_json(std::string_view text, const Origin& origin);
[[noreturn]] void fail_twice(const std::string& key, const Origin& origin);  // throws Error (data)
// Returns what the callback keeps of a text. Without one it returns all of it, and throws where there are more than 64
// levels or an object has a key twice.
nlohmann::json parse_json(std::string_view text, const nlohmann::json::parser_callback_t& callback,
                          const Origin& origin);

class JsonObject {
 public:
  using Json = nlohmann::json;

  // Throws Error (data), as every function here does for what is not as expected.
  JsonObject(std::string_view text, const Origin& origin);
  JsonObject(Json json, const Origin& origin);

  const Json* find(const char* key) const;  // null where there is none
  bool has(const char* key) const;          // also where its value is null
  std::string dump() const { return json_.dump(-1, ' ', true, Json::error_handler_t::replace); }
  const Origin& origin() const noexcept { return origin_; }
  const Json& json() const noexcept { return json_; }
  std::int64_t size(const char* key, std::int64_t otherwise) const;
  double number(const char* key, double otherwise, double low, double high) const;
  bool flag(const char* key, bool otherwise) const;
  std::string text(const char* key, const char* otherwise) const;
  // Keys that have nothing to say beside what is read.
  void pass_over(std::initializer_list<const char*> keys) const { asked_.insert(keys.begin(), keys.end()); }
  // A key that may only have the value which its reader has.
  void require(const char* key, const Json& only) const;
  [[noreturn]] void wrong(const char* key, const std::string& expected, const Json& found) const;

  // Throws for a key that none of the functions above was asked for, unless it is null or may be passed over.
  void finish(std::initializer_list<std::span<const PassedOver>> passed_over) const;

 private:
  const Origin& origin_;
  Json json_;
  mutable std::set<std::string, std::less<>> asked_;
};

// The reader's own check of a key that nobody asked for, which other formats share: a file may have it behind a prefix.
void require_passed_over(std::string_view key, const JsonObject::Json& value,
                         std::initializer_list<std::span<const PassedOver>> passed_over, const Origin& origin,
                         const std::string& prefix = {});

}  // namespace attn::io
