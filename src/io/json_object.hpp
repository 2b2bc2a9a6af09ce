// An object of JSON that nobody vouches for: each value by its key, of the kind that is expected. null stands for a
// missing key.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "io/bytes.hpp"

namespace attn::io {

class JsonObject {
 public:
  using Json = nlohmann::ordered_json;

  // Throws Error (data), as every function here does for what is not as expected.
  JsonObject(std::string_view text, const Origin& origin);
  JsonObject(Json json, const Origin& origin);

  const Json* find(const char* key) const;                         // null where there is none
  bool has(const char* key) const { return json_.contains(key); }  // also where its value is null
  std::string dump() const { return json_.dump(-1, ' ', true, Json::error_handler_t::replace); }
  const Origin& origin() const noexcept { return origin_; }
  std::int64_t size(const char* key, std::int64_t otherwise) const;
  double number(const char* key, double otherwise, double low, double high) const;
  bool flag(const char* key, bool otherwise) const;
  std::string text(const char* key, const char* otherwise) const;
  // A key that may only have the value which its reader has.
  void require(const char* key, const Json& only) const;
  [[noreturn]] void wrong(const char* key, const std::string& expected, const Json& found) const;

 private:
  const Origin& origin_;
  Json json_;
};

}  // namespace attn::io
