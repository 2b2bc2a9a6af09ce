// Values of a GGUF file by their keys, of the kind that is expected.
#pragma once

#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "attn/gguf.hpp"
#include "io/bytes.hpp"
#include "io/json_object.hpp"

namespace attn {

class GgufMetadata {
 public:
  GgufMetadata(const io::Gguf& file, io::Origin origin) : file_(file), origin_(origin) {}

  // Keys are then looked for with it, but for those of general. and tokenizer.
  void set_prefix(std::string_view architecture) { prefix_ = std::string(architecture) + "."; }
  const io::Origin& origin() const noexcept { return origin_; }

  bool has(const std::string& key) const { return find(key) != nullptr; }
  // All throw Error (data) for a value of another kind, or one that is missing and has no other.
  std::string text(const std::string& key, std::optional<std::string> otherwise = {}) const {
    return get<std::string>(key, std::move(otherwise));
  }
  std::int64_t whole(const std::string& key, std::optional<std::int64_t> otherwise = {}) const {
    return get<std::int64_t>(key, otherwise);
  }
  double number(const std::string& key, std::optional<double> otherwise = {}) const {
    const auto value = get<double>(key, otherwise);
    // A config.json has no others: such a number would be gone, and its key's default in its place.
    if (!std::isfinite(value)) origin_.fail("a finite number " + named(key), std::to_string(value));
    return value;
  }
  // One number for all layers, or a list that says the same of each.
  std::int64_t of_all_layers(const std::string& key, std::optional<std::int64_t> otherwise = {}) const {
    const io::GgufValue* value = find(key);
    const auto* list = value ? std::get_if<std::vector<std::int64_t>>(value) : nullptr;
    if (!list) return whole(key, otherwise);
    for (const std::int64_t one : *list) {
      if (one != list->front()) origin_.fail("the same " + named(key) + " in all layers", io::text_of(*value));
    }
    if (list->empty()) origin_.fail("a value " + named(key), "an empty list");
    return list->front();
  }
  // Null where there is none.
  const io::GgufValue* find(const std::string& key) const {
    const auto at = file_.metadata().find(named(key));
    asked_.insert(named(key));
    return at == file_.metadata().end() ? nullptr : &at->second;
  }

  // Throws for a key with this prefix that nobody asked for, unless it may be passed over.
  void finish(const std::string& prefix, std::span<const io::PassedOver> passed_over) const {
    for (auto at = file_.metadata().lower_bound(prefix); at != file_.metadata().end(); ++at) {
      if (!at->first.starts_with(prefix)) break;
      if (asked_.contains(at->first)) continue;
      io::require_passed_over(at->first.substr(prefix.size()), json_of(at->second), {passed_over}, origin_);
    }
  }
  const std::string& prefix() const noexcept { return prefix_; }

 private:
  std::string named(const std::string& key) const {
    return key.starts_with("general.") || key.starts_with("tokenizer.") ? key : prefix_ + key;
  }

  static io::JsonObject::Json json_of(const io::GgufValue& value) {
    return std::visit([](const auto& v) { return io::JsonObject::Json(v); }, value);
  }

  template <class T>
  T get(const std::string& key, std::optional<T> otherwise) const {
    const io::GgufValue* value = find(key);
    if (!value && !otherwise) origin_.fail("a value " + named(key), "none");
    if (!value) return *otherwise;
    if (!std::holds_alternative<T>(*value)) {
      origin_.fail(named(key) + " of another kind", io::in_quotes(io::text_of(*value)));
    }
    return std::get<T>(*value);
  }

  const io::Gguf& file_;
  io::Origin origin_;
  std::string prefix_;
  mutable std::set<std::string, std::less<>> asked_;
};

}  // namespace attn
