// tokenizer.json, as Hugging Face's tokenizers package writes it. What is not known here is refused by its name: a
// tokenizer that is nearly right gives wrong ids without a word.
#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "io/json_object.hpp"
#include "text/readers.hpp"

namespace attn::text {
namespace {

using io::JsonObject;
using Json = JsonObject::Json;
using Event = Json::parse_event_t;

constexpr int kDeepest = 32;
constexpr std::size_t kMostKeys = 1000;     // of an object other than the vocabulary
constexpr std::size_t kLongestText = 1024;  // of an added token, or of what a normalizer puts in
// Of a normalizer, a pre_tokenizer, a post_processor or a decoder. The pair is of two texts, which are not encoded
// here, and trim_offsets moves places in a text, not ids.
constexpr std::string_view kStepKeys =
    " type normalizers pretokenizers processors decoders prepend pattern content strip_left strip_right clean_text "
    "handle_chinese_chars strip_accents lowercase add_prefix_space trim_offsets use_regex individual_digits behavior "
    "invert replacement prepend_scheme split single pair special_tokens sep cls prefix cleanup start stop ";
// How many texts are cut and filled up for a batch is not asked for here, as transformers does not by itself.
constexpr std::string_view kRootKeys =
    " version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder model ";
constexpr std::string_view kModelKeys =
    " type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback ignore_merges vocab "
    "merges max_input_chars_per_word ";
constexpr std::size_t kMostReplacements = 4;  // each may make a text four times as long

// A key that nobody reads could ask for other ids.
void require_known(const Json& object, std::string_view keys, const io::Origin& origin) {
  if (!object.is_object()) return;
  for (const auto& [key, value] : object.items()) {
    const std::string whole = std::string(1, ' ').append(key).append(" ");
    if (!value.is_null() && keys.find(whole) == keys.npos) origin.fail("keys that attn knows", io::in_quotes(key));
  }
}

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
  return token;
}

// Follows the parser: takes the vocabulary, the merges and the added tokens, which are long, out of what becomes
// objects. The list of tokenizer_config.json repeats the added tokens, and is passed over.
class LongLists {
 public:
  LongLists(const io::Origin& origin, Description& description) : origin_(origin), description_(description) {}

  bool operator()(int depth, Event event, Json& value) {
    if (depth > kDeepest) origin_.fail("values that lie less deep", std::to_string(depth) + " deep");
    const auto level = static_cast<std::size_t>(depth);
    switch (event) {
      case Event::object_start:
      case Event::array_start:
        keys_[level + 1].clear(), counts_[level + 1] = 0;
        if (level == 2) enter(event);
        if (level > 2) require_place(level, event);
        return true;
      case Event::object_end:
      case Event::array_end:
        if (level == 2 && event == Event::object_end && keys_[1] == "added_tokens") {
          require_known(value, " id content single_word lstrip rstrip normalized special ", origin_);
          description_.added.push_back(added_token(JsonObject(value, origin_)));
          return false;
        }
        if (level == 2) in_vocabulary_ = in_merges_ = false;
        if (level == 3 && in_merges_) end_merge();
        return !in_merges_;
      case Event::key:
        keys_[level] = value.get<std::string>();
        if (in_vocabulary_ || (level > 1 && keys_[1] == "added_tokens_decoder")) return false;
        if (++counts_[level] > kMostKeys) origin_.fail("at most 1000 keys", "more at " + io::in_quotes(keys_[level]));
        return true;
      case Event::value:
        return !(in_merges_ ? take_merge(level, value) : in_vocabulary_ && take_token(value));
    }
    return true;
  }

 private:
  void enter(Event event) {
    if (keys_[1] != "model") return;
    in_vocabulary_ = event == Event::object_start && keys_[2] == "vocab";
    in_merges_ = event == Event::array_start && keys_[2] == "merges";
    if ((in_vocabulary_ && !description_.vocabulary.empty()) || (in_merges_ && !description_.merges.empty())) {
      origin_.fail("one " + keys_[2], "two");
    }
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
  std::array<std::string, kDeepest + 2> keys_;  // the key at each depth
  std::array<std::size_t, kDeepest + 2> counts_{};
  std::vector<std::string> parts_;
};

Json parsed(std::string_view text, const io::Origin& origin, Description& description) {
  LongLists lists(origin, description);
  return io::parse_json(text, std::ref(lists), origin);
}

// Reads the parts of a file; a part that has a list of parts is those.
class Reader {
 public:
  Reader(const Json& root, const io::Origin& origin, Description& description)
      : origin_(origin), root_(root, origin), d_(description) {
    require_known(root, kRootKeys, origin);
  }

  void read() {
    const JsonObject model = part(root_, "model");
    require_known(*root_.find("model"), kModelKeys, origin_);
    read_model(model);
    for (const Json& token : list(root_, "added_tokens")) origin_.fail("objects in added_tokens", token.type_name());
    each("normalizer", "normalizers", [&](const JsonObject& step) { read_normalizer(step); });
    each("pre_tokenizer", "pretokenizers", [&](const JsonObject& step) { read_splitter(step); });
    each("post_processor", "processors", [&](const JsonObject& step) { read_template(step); });
    if (!root_.find("decoder")) origin_.fail("a decoder", "none");
    each("decoder", "decoders", [&](const JsonObject& step) { read_decoder(step); });
    if (d_.byte_level != byte_level_decoder_)
      origin_.fail("ByteLevel before and after the model, or at neither", "one");
  }

 private:
  JsonObject part(const JsonObject& json, const char* key) const {
    const Json* value = json.find(key);
    if (!value) json.wrong(key, "there", nullptr);
    return JsonObject(*value, origin_);
  }

  static Json list(const JsonObject& json, const char* key) {
    const Json* value = json.find(key);
    if (value && !value->is_array()) json.wrong(key, "a list", *value);
    return value ? *value : Json::array();
  }

  template <class F>
  void each(const char* key, const char* members, F&& read) {
    const Json* value = root_.find(key);
    if (!value) return;
    const JsonObject json(*value, origin_);
    require_known(*value, kStepKeys, origin_);
    if (json.text("type", "") != "Sequence") return read(json);
    for (const Json& member : list(json, members)) {
      require_known(member, kStepKeys, origin_);
      read(JsonObject(member, origin_));
    }
  }

  [[noreturn]] void unknown(const char* part, const std::string& type) const {
    constexpr std::size_t most = 400;  // a pattern is told whole
    origin_.fail("a " + std::string(part) + " that attn knows",
                 type.size() < most ? '"' + type + '"' : io::in_quotes(type));
  }

  std::string short_text(const JsonObject& json, const char* key, std::size_t most = kLongestText) const {
    std::string text = json.text(key, "");
    if (text.empty() || text.size() > most) json.wrong(key, "a text of 1 to " + std::to_string(most) + " bytes", text);
    return text;
  }

  // {"String": "▁"}; a pattern of another kind is left to the caller.
  std::string literal(const JsonObject& json) const {
    const JsonObject pattern = part(json, "pattern");
    if (!pattern.find("String")) unknown("pattern", pattern.text("Regex", ""));
    return short_text(pattern, "String");
  }

  void read_model(const JsonObject& model) {
    const std::string type = model.text("type", model.find("merges") ? "BPE" : "");
    if (d_.vocabulary.empty()) model.wrong("vocab", "an object of ids", nullptr);
    if (model.find("unk_token")) d_.unknown = model.text("unk_token", "");
    if (type == "WordPiece") {
      const auto most = static_cast<std::size_t>(model.number("max_input_chars_per_word", 100, 1, 1000));
      d_.word_piece = {.next = model.text("continuing_subword_prefix", "##"), .most_characters = most};
      return;
    }
    if (type != "BPE") unknown("model", type);
    for (const char* const key : {"continuing_subword_prefix", "end_of_word_suffix"}) model.require(key, "");
    if (model.number("dropout", 0, 0, 1) != 0) model.wrong("dropout", "0", *model.find("dropout"));
    if (!model.find("merges")) model.wrong("merges", "a list", nullptr);
    d_.byte_fallback = model.flag("byte_fallback", false);
    d_.ignore_merges = model.flag("ignore_merges", false);
    d_.fuse_unknown = model.flag("fuse_unk", false);
  }

  void read_normalizer(const JsonObject& json) {
    using Kind = Normalizer::Kind;
    const std::map<std::string, Kind> simple{
        {"NFC", Kind::nfc}, {"NFD", Kind::nfd}, {"Lowercase", Kind::lowercase}, {"StripAccents", Kind::strip_accents}};
    const std::string type = json.text("type", "");
    if (const auto at = simple.find(type); at != simple.end()) {
      d_.normalizers.push_back({.kind = at->second});
    } else if (type == "Prepend") {
      d_.normalizers.push_back({.kind = Kind::prepend, .to = short_text(json, "prepend")});
    } else if (type == "Strip") {
      d_.normalizers.push_back(
          {.kind = Kind::strip, .left = json.flag("strip_left", true), .right = json.flag("strip_right", true)});
    } else if (type == "Replace") {
      const JsonObject pattern = part(json, "pattern");
      const std::string to = json.text("content", "");
      const std::size_t least = pattern.find("String") ? pattern.text("String", "").size() : 1;
      if (to.size() > 4 * least || ++replacements_ > kMostReplacements) {
        origin_.fail("at most 4 replacements, by texts at most 4 times as long", io::in_quotes(to));
      }
      d_.normalizers.push_back({.kind = Kind::replace, .to = to, .pattern = regex(pattern)});
    } else if (type == "BertNormalizer") {
      const bool lowercase = json.flag("lowercase", true);
      if (json.flag("clean_text", true)) d_.normalizers.push_back({.kind = Kind::clean});
      if (json.flag("handle_chinese_chars", true)) d_.normalizers.push_back({.kind = Kind::ideographs});
      if (json.flag("strip_accents", lowercase)) d_.normalizers.push_back({.kind = Kind::bert_marks});
      if (lowercase) d_.normalizers.push_back({.kind = Kind::lowercase});
    } else {
      unknown("normalizer", type);
    }
  }

  // {"String": "a"} or {"Regex": "a+"}
  std::shared_ptr<const Regex> regex(const JsonObject& pattern) const {
    if (pattern.find("String")) return std::make_shared<const Regex>(Regex::literal(short_text(pattern, "String")));
    return std::make_shared<const Regex>(short_text(pattern, "Regex", 16 * kLongestText), origin_);
  }

  Splitter::Behavior behavior(const JsonObject& json, const char* otherwise) const {
    using Behavior = Splitter::Behavior;
    const std::map<std::string, Behavior> behaviors{{"Isolated", Behavior::isolated},
                                                    {"Removed", Behavior::removed},
                                                    {"MergedWithPrevious", Behavior::merged_with_previous},
                                                    {"MergedWithNext", Behavior::merged_with_next},
                                                    {"Contiguous", Behavior::contiguous}};
    const std::string name = json.text("behavior", otherwise);
    const auto at = behaviors.find(name);
    if (at == behaviors.end()) unknown("behavior", name);
    return at->second;
  }

  void read_splitter(const JsonObject& json) {
    using Behavior = Splitter::Behavior;
    const std::string type = json.text("type", "");
    const auto cut = [&](std::string_view pattern, Behavior b) { d_.splitters.push_back(split_at(pattern, b)); };
    if (d_.byte_level) unknown("pre_tokenizer after ByteLevel", type);
    if (type == "ByteLevel") {
      d_.byte_level = true;
      if (json.flag("add_prefix_space", true)) d_.splitters.push_back({.kind = Splitter::Kind::blank_before});
      if (json.flag("use_regex", true)) cut(kGpt2Pattern, Behavior::isolated);
    } else if (type == "Digits") {
      cut(R"(\p{=number})", json.flag("individual_digits", false) ? Behavior::isolated : Behavior::contiguous);
    } else if (type == "Punctuation") {
      cut(R"(\p{=punctuation})", behavior(json, "Isolated"));
    } else if (type == "WhitespaceSplit") {
      cut(R"(\s)", Behavior::removed);
    } else if (type == "Whitespace") {
      cut(R"(\p{=word}+|[^\p{=word}\s]+)", Behavior::removed);
      d_.splitters.back().invert = true;
    } else if (type == "BertPreTokenizer") {
      cut(R"(\s)", Behavior::removed);
      cut(R"(\p{=punctuation})", Behavior::isolated);
    } else if (type == "Split") {
      d_.splitters.push_back({.pattern = regex(part(json, "pattern")),
                              .behavior = behavior(json, ""),
                              .invert = json.flag("invert", false)});
    } else if (type == "Metaspace") {
      read_metaspace(json);
    } else {
      unknown("pre_tokenizer", type);
    }
  }

  void read_metaspace(const JsonObject& json) {
    json.require("replacement", std::string(kBlank));
    const std::string old = json.flag("add_prefix_space", true) ? "always" : "never";
    const std::string scheme = json.text("prepend_scheme", old.c_str());
    const std::map<std::string, Splitter::Prepend> schemes{{"never", Splitter::Prepend::never},
                                                           {"first", Splitter::Prepend::first},
                                                           {"always", Splitter::Prepend::always}};
    const auto at = schemes.find(scheme);
    if (at == schemes.end()) unknown("prepend_scheme", scheme);
    d_.splitters.push_back({.kind = Splitter::Kind::metaspace, .prepend = at->second});
    if (!json.flag("split", true)) return;
    d_.splitters.push_back({.pattern = std::make_shared<const Regex>(Regex::literal(kBlank)),
                            .behavior = Splitter::Behavior::merged_with_next});
  }

  // The ids that stand before and after one text.
  void read_template(const JsonObject& json) {
    const std::string type = json.text("type", "");
    if (type == "ByteLevel") return;  // it moves places in the text, not ids
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      d_.before.push_back(named_id(json, "cls"));
      d_.after.insert(d_.after.begin(), named_id(json, "sep"));
      return;
    }
    if (type != "TemplateProcessing") unknown("post_processor", type);
    const JsonObject tokens = part(json, "special_tokens");
    bool after = false;
    for (const Json& item : list(json, "single")) {
      const JsonObject member(item, origin_);
      if (member.find("Sequence")) {
        if (std::exchange(after, true)) json.wrong("single", "a template with one text", item);
        continue;
      }
      const std::string name = part(member, "SpecialToken").text("id", "");
      for (const Json& id : list(part(tokens, name.c_str()), "ids")) {
        const bool fits = id.is_number_unsigned() && id.get<std::uint64_t>() < (std::uint64_t{1} << 31);
        if (!fits) json.wrong("special_tokens", "ids below 2^31", id);
        (after ? d_.after : d_.before).push_back(id.get<Id>());
      }
    }
    if (!after) json.wrong("single", "a template with one text", list(json, "single"));
  }

  // ["[SEP]", 102]
  Id named_id(const JsonObject& json, const char* key) const {
    const Json* value = json.find(key);
    const bool pair = value && value->is_array() && value->size() == 2 && (*value)[1].is_number_unsigned();
    if (!pair || (*value)[1].get<std::uint64_t>() >= (std::uint64_t{1} << 31)) {
      json.wrong(key, "a token and its id", value ? *value : Json());
    }
    return (*value)[1].get<Id>();
  }

  void read_decoder(const JsonObject& json) {
    const std::string type = json.text("type", "");
    if (type == "ByteLevel") {
      byte_level_decoder_ = true;
    } else if (type == "Replace") {
      d_.replaced.emplace_back(literal(json), json.text("content", ""));
      if (d_.replaced.size() > kMostReplacements) origin_.fail("at most 4 replacements", "more");
    } else if (type == "ByteFallback") {
      d_.bytes_decoded = true;
    } else if (type == "WordPiece") {
      d_.word_piece_decoder = {.next = json.text("prefix", "##"), .cleanup = json.flag("cleanup", true)};
    } else if (type == "Metaspace") {
      json.require("replacement", std::string(kBlank));
      const bool prefix = json.flag("add_prefix_space", true) && json.text("prepend_scheme", "always") != "never";
      d_.replaced.emplace_back(kBlank, " ");
      d_.blanks_before += prefix ? 1 : 0;
    } else if (type == "Fuse") {
      fused_ = true;
    } else if (type == "Strip" && fused_) {
      json.require("content", " ");
      json.require("stop", 0);
      d_.blanks_before += static_cast<std::size_t>(json.number("start", 0, 0, 1024));
    } else {
      unknown("decoder", type);
    }
  }

  const io::Origin& origin_;
  JsonObject root_;
  Description& d_;
  std::size_t replacements_ = 0;
  bool byte_level_decoder_ = false, fused_ = false;
};

// "<s>", or {"content": "<s>", …}; null for none.
std::optional<std::string> token_name(const JsonObject& config, const char* key, const io::Origin& origin) {
  const Json* value = config.find(key);
  if (!value) return {};
  return value->is_object() ? JsonObject(*value, origin).text("content", "") : config.text(key, "");
}

std::optional<Id> id_of(const std::string& token, const Description& d) {
  const auto added = std::ranges::find(d.added, token, &AddedToken::content);
  if (added != d.added.end()) return added->id;
  const auto at = std::ranges::find(d.vocabulary, token, [](const auto& entry) { return entry.first; });
  return at == d.vocabulary.end() ? std::nullopt : std::optional(static_cast<Id>(at->second));
}

// What the flag says of a mark around a text must be what tokenizer.json does.
void require_mark(const JsonObject& config, const char* flag, const char* token, const std::vector<Id>& marks,
                  const Description& description, const io::Origin& origin) {
  const auto name = token_name(config, token, origin);
  const auto id = name ? id_of(*name, description) : std::nullopt;
  if (config.find(flag) && id) config.require(flag, std::ranges::count(marks, *id) > 0);
}

// "bos_token" and its kin, those of a model alone among them.
void read_named_tokens(const JsonObject& config, const io::Origin& origin, Description& description) {
  const auto add = [&](const std::string& key, const Json& value) {
    if (value.is_string()) description.named_tokens[key] = value.get<std::string>();
    if (value.is_object() && value.contains("content")) {
      description.named_tokens[key] = JsonObject(value, origin).text("content", "");
    }
  };
  for (const auto& [key, value] : config.json().items()) {
    if (key.ends_with("_token")) add(key, value);
  }
  for (const char* const further : {"model_specific_special_tokens", "extra_special_tokens"}) {
    const Json* tokens = config.find(further);
    if (!tokens || !tokens->is_object()) continue;
    for (const auto& [key, value] : tokens->items()) add(key, value);
  }
}

}  // namespace

Description describe_tokenizer_json(std::string_view json, const io::Origin& origin) {
  Description description;
  const Json root = parsed(json, origin, description);
  Reader(root, origin, description).read();
  return description;
}

std::string with_special_tokens(std::string_view config, const io::Origin& origin, std::string_view map,
                                const io::Origin& map_origin) {
  Description none;
  Json all = parsed(config, origin, none);
  const JsonObject tokens(parsed(map, map_origin, none), map_origin);
  if (!all.is_object() || all.contains("added_tokens_decoder")) return std::string(config);
  for (const auto& [key, value] : tokens.json().items()) {
    if (key.ends_with("_token")) token_name(tokens, key.c_str(), map_origin);  // throws for what is no token
    all[key] = value;
  }
  return JsonObject(std::move(all), origin).dump();
}

void add_tokenizer_config(std::string_view json, const io::Origin& origin, Description& description) {
  Description none;
  const JsonObject config(parsed(json, origin, none), origin);
  if (const auto end = token_name(config, "eos_token", origin)) description.end_of_text = id_of(*end, description);
  if (description.end_of_text) description.ends.push_back(*description.end_of_text);
  config.require("split_special_tokens", false);
  require_mark(config, "add_bos_token", "bos_token", description.before, description, origin);
  require_mark(config, "add_eos_token", "eos_token", description.after, description, origin);
  read_named_tokens(config, origin, description);
  const Json* chat = config.find("chat_template");
  if (!chat) return;
  if (!chat->is_array()) {
    description.chat_templates["default"] = config.text("chat_template", "");
    return;
  }
  for (const Json& item : *chat) {
    const JsonObject named(item, origin);
    description.chat_templates[named.text("name", "")] = named.text("template", "");
  }
}

}  // namespace attn::text
