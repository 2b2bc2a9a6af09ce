#include "text/tokenizer_lists.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "text/readers.hpp"

namespace attn::text {
namespace {

using io::JsonObject;
using Json = JsonObject::Json;
using Event = Json::parse_event_t;

constexpr int kDeepest = 32;
constexpr std::size_t kMostKeys = 1000;  // of an object other than the vocabulary
constexpr std::string_view kDecoder = "added_tokens_decoder";

// Follows the parser: takes the vocabulary, the merges and the added tokens, which are long, out of what becomes
// objects.
class LongLists {
 public:
  LongLists(const io::Origin& origin, Description& description) : origin_(origin), description_(description) {}

  bool operator()(int depth, Event event, Json& value) {
    if (depth > kDeepest) origin_.fail("values that lie less deep", std::to_string(depth) + " deep");
    const auto level = static_cast<std::size_t>(depth);
    switch (event) {
      case Event::object_start:
      case Event::array_start:
        keys_[level + 1].clear(), seen_[level + 1].clear();
        if (level == 2) enter(event);
        if (level > 2) require_place(level, event);
        return true;
      case Event::object_end:
      case Event::array_end:
        if (level == 2 && event == Event::object_end && (keys_[1] == "added_tokens" || keys_[1] == kDecoder)) {
          if (keys_[1] == kDecoder) value["id"] = id_in(keys_[2]);
          description_.added.push_back(added_token(JsonObject(value, origin_)));
          return false;
        }
        if (level == 2) in_vocabulary_ = in_merges_ = false;
        if (level == 3 && in_merges_) end_merge();
        return !in_merges_;
      case Event::key:
        keys_[level] = value.get<std::string>();
        if (in_vocabulary_) return false;
        if (!seen_[level].insert(keys_[level]).second) io::fail_twice(keys_[level], origin_);
        if (level == 2 && keys_[1] == kDecoder) return true;
        if (seen_[level].size() > kMostKeys)
          origin_.fail("at most 1000 keys", "more at " + io::in_quotes(keys_[level]));
        return true;
      case Event::value:
        return !(in_merges_ ? take_merge(level, value) : in_vocabulary_ && take_token(value));
    }
    return true;
  }

 private:
  // "32000", or what is no id.
  static Json id_in(const std::string& key) {
    const bool digits =
        !key.empty() && key.size() < 11 && std::ranges::all_of(key, [](char c) { return c >= '0' && c <= '9'; });
    return digits ? Json(std::stoull(key)) : Json(key);
  }

  void enter(Event event) {
    if (keys_[1] != "model") return;
    in_vocabulary_ = event == Event::object_start && keys_[2] == "vocab";
    in_merges_ = event == Event::array_start && keys_[2] == "merges";
  }

  // The vocabulary holds numbers alone, the merges at most lists.
  void require_place(std::size_t level, Event event) const {
    if (in_vocabulary_)
      origin_.fail("ids that are whole numbers", "a list or an object for " + io::in_quotes(keys_[3]));
    const bool merge = level == 3 && event == Event::array_start;
    if (in_merges_ && !merge) origin_.fail("merges of two tokens", "another list or an object");
  }

  bool take_token(const Json& value) {
    if (!value.is_number_unsigned()) {
      origin_.fail("ids that are whole numbers", std::string(value.type_name()) + " for " + io::in_quotes(keys_[3]));
    }
    description_.vocabulary.emplace_back(keys_[3], value.get<std::uint64_t>());
    return false;  // its key has not been kept
  }

  // "a b", or ["a", "b"]
  bool take_merge(std::size_t level, const Json& value) {
    if (!value.is_string()) origin_.fail("merges of two tokens", value.type_name());
    if (level == 3) description_.merges.push_back(merge_of(value.get_ref<const std::string&>(), origin_));
    if (level == 4) parts_.push_back(value.get<std::string>());
    return true;
  }

  void end_merge() {
    if (parts_.size() != 2) origin_.fail("merges of two tokens", std::to_string(parts_.size()) + " tokens");
    description_.merges.emplace_back(std::move(parts_[0]), std::move(parts_[1]));
    parts_.clear();
  }

  const io::Origin& origin_;
  Description& description_;
  bool in_vocabulary_ = false, in_merges_ = false;
  std::array<std::string, kDeepest + 2> keys_;            // the key at each depth
  std::array<std::set<std::string>, kDeepest + 2> seen_;  // all keys of the object there
  std::vector<std::string> parts_;
};

}  // namespace

AddedToken added_token(const JsonObject& json) {
  AddedToken token;
  token.content = json.text("content", "");
  if (token.content.empty() || token.content.size() > kLongestText) {
    json.wrong("content", "a text of 1 to 1024 bytes", token.content);
  }
  const Json* id = json.find("id");
  if (!id || !id->is_number_unsigned() || id->get<std::uint64_t>() >= (std::uint64_t{1} << 31)) {
    json.wrong("id", "a whole number below 2^31", id ? *id : Json());
  }
  token.id = id->get<Id>();
  token.special = json.flag("special", false);
  token.lstrip = json.flag("lstrip", false);
  token.rstrip = json.flag("rstrip", false);
  token.normalized = json.flag("normalized", !token.special);
  token.single_word = json.flag("single_word", false);
  json.finish({});
  return token;
}

nlohmann::json parse_tokenizer(std::string_view text, const io::Origin& origin, Description& description) {
  LongLists lists(origin, description);
  return io::parse_json(text, std::ref(lists), origin);
}

}  // namespace attn::text
