#include "io/json_object.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <utility>

#include "core/decimal.hpp"

namespace attn::io {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 31;  // of a size: products of two stay far from 2^63

constexpr int kDeepest = 64;  // objects and lists in each other: what copies or prints a value goes as deep

// Follows a parser, which takes the last one of two equal keys.
class EveryKeyOnce {
 public:
  using Event = JsonObject::Json::parse_event_t;

  explicit EveryKeyOnce(const Origin& origin) : origin_(origin) {}

  bool operator()(int depth, Event event, const JsonObject::Json& value) {
    if (depth > kDeepest) origin_.fail("JSON of at most " + std::to_string(kDeepest) + " levels", "more");
    const auto level = static_cast<std::size_t>(depth);
    if (event == Event::object_start) keys_[level + 1].clear();
    if (event == Event::key && !keys_[level].insert(value).second) fail_twice(value, origin_);
    return true;
  }

 private:
  const Origin& origin_;
  std::array<std::set<std::string>, kDeepest + 2> keys_;  // of the object at each depth
};

// A string in its quotes, which other values do not have: "3" is not 3.
std::string shown(const JsonObject::Json& value) {
  if (value.is_string()) return in_quotes(value.get<std::string>());
  return excerpt(value.dump(-1, ' ', true, JsonObject::Json::error_handler_t::replace));
}

// Throws for the mistake that a parser without exceptions has stopped at: on a page none can be caught.
class Mistake : public nlohmann::json_sax<nlohmann::json> {
 public:
  Mistake(std::string_view text, const Origin& origin) : text_(text), origin_(origin) {}

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) override {
    constexpr int past_the_largest_number = 406;
    if (error.id == past_the_largest_number) origin_.fail("JSON", error.what());
    fail_json(text_, position, origin_);
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }

 private:
  std::string_view text_;
  const Origin& origin_;
};

bool among(std::string_view key, std::string_view keys) {
  for (std::size_t at = 0; at < keys.size();) {
    const std::size_t end = std::min(keys.find(' ', at), keys.size());
    const std::string_view one = keys.substr(at, end - at);
    if (one == key || (one.ends_with('*') && key.starts_with(one.substr(0, one.size() - 1)))) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

void fail_json(std::string_view text, std::size_t byte, const Origin& origin) {
  const std::string_view before = text.substr(0, std::min(byte == 0 ? 0 : byte - 1, text.size()));
  const std::size_t line_begin = before.rfind('\n') + 1;  // 0 where there is none
  const auto in_line = before.substr(line_begin);
  const auto characters = std::ranges::count_if(in_line, [](char c) { return (c & 0xc0) != 0x80; });
  const std::string place =
      "line " + std::to_string(1 + std::ranges::count(before, '\n')) + ", column " + std::to_string(characters + 1);
  const std::string_view rest = text.substr(before.size());
  if (rest.empty()) origin.fail("JSON", "its end at " + place);
  origin.fail("JSON", rest[0] == 0 ? "a zero byte at " + place : "an error at " + place + ", at " + in_quotes(rest));
}

void fail_twice(const std::string& key, const Origin& origin) {
  origin.fail("every key once", in_quotes(key) + " twice");
}

void require_plain_json(std::string_view text, const Origin& origin) {
  if (text.starts_with("\xef\xbb\xbf")) origin.fail("JSON", "a byte order mark", "save it as UTF-8 without one");
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) fail_json(text, zero + 1, origin);
}

nlohmann::json parse_json(std::string_view text, const nlohmann::json::parser_callback_t& callback,
                          const Origin& origin) {
  require_plain_json(text, origin);
  EveryKeyOnce once(origin);
  nlohmann::json json =
      callback ? nlohmann::json::parse(text, callback, false) : nlohmann::json::parse(text, std::ref(once), false);
  if (json.is_discarded()) {
    Mistake mistake(text, origin);
    nlohmann::json::sax_parse(text, &mistake);
  }
  return json;
}

void require_passed_over(std::string_view key, const JsonObject::Json& value,
                         std::initializer_list<std::span<const PassedOver>> passed_over, const Origin& origin,
                         const std::string& prefix) {
  for (const auto& some : passed_over) {
    const auto at = std::ranges::find_if(some, [&](const PassedOver& p) { return among(key, p.keys); });
    if (at == some.end()) continue;
    if (at->values.empty()) return;
    const auto values = JsonObject::Json::parse(at->values);
    if (std::ranges::find(values, value) != values.end()) return;
    const std::string name = prefix + std::string(key);
    origin.fail((values.empty() ? "no " + name : name + " to be one of " + std::string(at->values)) + ": " +
                    std::string(at->reason),
                shown(value));
  }
  origin.fail("keys that attn reads, or that change nothing", prefix + excerpt(key) + ": " + shown(value),
              "what it asks for would be passed over; remove it if the model is the same without it");
}

JsonObject::JsonObject(std::string_view text, const Origin& origin)
    : JsonObject(parse_json(text, nullptr, origin), origin) {}

JsonObject::JsonObject(Json json, const Origin& origin) : origin_(origin), json_(std::move(json)) {
  if (!json_.is_object()) origin.fail("an object", json_.type_name());
}

bool JsonObject::has(const char* key) const {
  asked_.emplace(key);
  return json_.contains(key);
}

const JsonObject::Json* JsonObject::find(const char* key) const {
  asked_.emplace(key);
  const auto at = json_.find(key);
  return at == json_.end() || at->is_null() ? nullptr : &*at;
}

std::int64_t JsonObject::size(const char* key, std::int64_t otherwise) const {
  const Json* value = find(key);
  if (!value) return otherwise;
  const bool fits = value->is_number_unsigned() && value->get<std::uint64_t>() <= std::uint64_t{kLargest};
  if (!fits || value->get<std::int64_t>() < 1) wrong(key, "an integer from 1 to 2^31", *value);
  return value->get<std::int64_t>();
}

double JsonObject::number(const char* key, double otherwise, double low, double high) const {
  const Json* value = find(key);
  if (!value) return otherwise;
  if (!value->is_number()) wrong(key, "a number", *value);
  const auto x = value->get<double>();
  if (!(x >= low && x <= high)) wrong(key, "a number from " + decimal(low, 6) + " to " + decimal(high, 6), *value);
  return x;
}

bool JsonObject::flag(const char* key, bool otherwise) const {
  const Json* value = find(key);
  if (value && !value->is_boolean()) wrong(key, "true or false", *value);
  return value ? value->get<bool>() : otherwise;
}

std::string JsonObject::text(const char* key, const char* otherwise) const {
  const Json* value = find(key);
  if (value && !value->is_string()) wrong(key, "a string", *value);
  return value ? value->get<std::string>() : otherwise;
}

void JsonObject::require(const char* key, const Json& only) const {
  const Json* value = find(key);
  if (value && *value != only) wrong(key, only.dump(), *value);
}

void JsonObject::wrong(const char* key, const std::string& expected, const Json& found) const {
  origin_.fail(std::string(key) + " to be " + expected, shown(found));
}

void JsonObject::finish(std::initializer_list<std::span<const PassedOver>> passed_over) const {
  for (const auto& [key, value] : json_.items()) {
    if (!asked_.contains(key) && !value.is_null()) require_passed_over(key, value, passed_over, origin_);
  }
}

}  // namespace attn::io
