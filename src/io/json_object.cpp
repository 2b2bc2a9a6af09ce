#include "io/json_object.hpp"

#include <utility>

namespace attn::io {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 31;  // of a size: products of two stay far from 2^63

constexpr int kDeepest = 64;  // objects and lists in each other: what copies or prints a value goes as deep

JsonObject::Json parsed(std::string_view text, const Origin& origin) {
  using Event = JsonObject::Json::parse_event_t;
  const auto shallow = [&](int depth, Event, const JsonObject::Json&) {
    if (depth > kDeepest) origin.fail("JSON of at most " + std::to_string(kDeepest) + " levels", "more");
    return true;
  };
  try {
    return JsonObject::Json::parse(text, shallow);
  } catch (const JsonObject::Json::exception&) {
    origin.fail("JSON", in_quotes(text.substr(0, 60)));
  }
}

}  // namespace

JsonObject::JsonObject(std::string_view text, const Origin& origin) : JsonObject(parsed(text, origin), origin) {}

JsonObject::JsonObject(Json json, const Origin& origin) : origin_(origin), json_(std::move(json)) {
  if (!json_.is_object()) origin.fail("an object", json_.type_name());
}

const JsonObject::Json* JsonObject::find(const char* key) const {
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
  const double x = value->is_number() ? value->get<double>() : low - 1;
  if (!(x >= low && x <= high)) wrong(key, "a number in its range", *value);
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

// A string in its quotes, which other values do not have: "3" is not 3.
void JsonObject::wrong(const char* key, const std::string& expected, const Json& found) const {
  origin_.fail(std::string(key) + " to be " + expected,
               found.is_string() ? in_quotes(found.get<std::string>())
                                 : excerpt(found.dump(-1, ' ', true, Json::error_handler_t::replace)));
}

}  // namespace attn::io
