// Values of a GGUF file by their keys, of the kind that is expected. It keeps what was asked for, so that a key that
// nobody reads is refused.
#pragma once

#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "attn/gguf.hpp"
#include "io/bytes.hpp"
#include "io/json_object.hpp"

namespace attn::io {

class GgufMetadata {
 public:
  // Keys are looked for behind the prefix, "llama." or "tokenizer.ggml.", but for those of general. and tokenizer.
  GgufMetadata(const Gguf& file, Origin origin, std::string prefix = {})
      : file_(file), origin_(origin), prefix_(std::move(prefix)) {}

  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }
  const std::string& prefix() const noexcept { return prefix_; }
  const Origin& origin() const noexcept { return origin_; }

  bool has(const std::string& key) const { return find(key) != nullptr; }
  // All throw Error (data) for a value of another kind, or one that is missing and has no other.
  std::string text(const std::string& key, std::optional<std::string> otherwise = {}) const {
    return get<std::string>(key, std::move(otherwise));
  }
  std::int64_t whole(const std::string& key, std::optional<std::int64_t> otherwise = {}) const {
    return get<std::int64_t>(key, otherwise);
  }
  bool flag(const std::string& key, std::optional<bool> otherwise = {}) const { return get<bool>(key, otherwise); }
  double number(const std::string& key, std::optional<double> otherwise = {}) const {
    const auto value = get<double>(key, otherwise);
    // A config.json has no others: such a number would be gone, and its key's default in its place.
    if (!std::isfinite(value)) origin_.fail("a finite number " + named(key), std::to_string(value));
    return value;
  }
  // One number for all layers, or a list that says the same of each.
  std::int64_t of_all_layers(const std::string& key, std::optional<std::int64_t> otherwise = {}) const {
    const GgufValue* value = find(key);
    const auto* list = value ? std::get_if<std::vector<std::int64_t>>(value) : nullptr;
    if (!list) return whole(key, otherwise);
    for (const std::int64_t one : *list) {
      if (one != list->front()) origin_.fail("the same " + named(key) + " in all layers", text_of(*value));
    }
    if (list->empty()) origin_.fail("a value " + named(key), "an empty list");
    return list->front();
  }
  std::string named(const std::string& key) const {
    return key.starts_with("general.") || key.starts_with("tokenizer.") ? key : prefix_ + key;
  }
  // A key that may only say what the rest of the file does.
  void require(const std::string& key, std::int64_t only) const {
    const std::int64_t found = whole(key, only);
    if (found == only) return;
    origin_.fail(named(key) + " of " + std::to_string(only) + ", as the rest of the file has it",
                 std::to_string(found));
  }

  // Null where there is none.
  const GgufValue* find(const std::string& key) const {
    const auto at = file_.metadata().find(named(key));
    asked_.insert(named(key));
    return at == file_.metadata().end() ? nullptr : &at->second;
  }
  template <class T>
  const T* find(const std::string& key) const {
    const GgufValue* value = find(key);
    if (value && !std::holds_alternative<T>(*value)) {
      origin_.fail(named(key) + " of another kind", in_quotes(text_of(*value)));
    }
    return value ? std::get_if<T>(value) : nullptr;
  }
  template <class T>
  const T& required(const std::string& key) const {
    const T* value = find<T>(key);
    if (!value) origin_.fail("a value " + named(key), "none");
    return *value;
  }

  // Throws for a key with this beginning that nobody asked for, unless it may be passed over.
  void finish(const std::string& beginning, std::span<const PassedOver> passed_over) const {
    for (auto at = file_.metadata().lower_bound(beginning); at != file_.metadata().end(); ++at) {
      if (!at->first.starts_with(beginning)) break;
      if (asked_.contains(at->first)) continue;
      require_passed_over(at->first.substr(beginning.size()), json_of(at->second), {passed_over}, origin_, beginning);
    }
  }

 private:
  static JsonObject::Json json_of(const GgufValue& value) {
    return std::visit([](const auto& v) { return JsonObject::Json(v); }, value);
  }

  template <class T>
  T get(const std::string& key, std::optional<T> otherwise) const {
    return otherwise && !has(key) ? *otherwise : required<T>(key);
  }

  const Gguf& file_;
  Origin origin_;
  std::string prefix_;
  mutable std::set<std::string, std::less<>> asked_;
};

}  // namespace attn::io
