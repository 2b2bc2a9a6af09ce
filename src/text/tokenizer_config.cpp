// tokenizer_config.json and special_tokens_map.json, as transformers reads them.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "io/passed_over.hpp"
#include "text/readers.hpp"
#include "text/tokenizer_lists.hpp"

namespace attn::text {
namespace {

using io::JsonObject;
using Json = JsonObject::Json;

// "<s>", or {"content": "<s>", …}; null for none.
std::optional<std::string> token_name(const JsonObject& config, const char* key, const io::Origin& origin) {
  const Json* value = config.find(key);
  if (!value) return {};
  return value->is_object() ? JsonObject(*value, origin).text("content", "") : config.text(key, "");
}

// The older keys must say of steps what tokenizer.json does.
void require_steps(const JsonObject& config, const Description& d) {
  const auto normalizes = [&](Normalizer::Kind kind) {
    return std::ranges::count(d.normalizers, kind, &Normalizer::kind) > 0;
  };
  const bool blank = std::ranges::count(d.splitters, Splitter::Kind::blank_before, &Splitter::kind) > 0;
  if (d.byte_level) config.require("add_prefix_space", blank);
  if (!d.word_piece) return;
  config.require("do_lower_case", normalizes(Normalizer::Kind::lowercase));
  config.require("strip_accents", normalizes(Normalizer::Kind::bert_marks));
  config.require("tokenize_chinese_chars", normalizes(Normalizer::Kind::ideographs));
}

// The tokens of a description by their contents.
class Tokens {
 public:
  explicit Tokens(Description& d) : d_(d) {
    for (const auto& [content, id] : d.vocabulary) ids_.emplace(content, static_cast<Id>(id));
    for (std::size_t i = 0; i < d.added.size(); ++i) places_.emplace(d.added[i].content, i);
  }

  std::optional<Id> id_of(const std::string& content) const {
    if (const auto at = places_.find(content); at != places_.end()) return d_.added[at->second].id;
    const auto at = ids_.find(content);
    return at == ids_.end() ? std::nullopt : std::optional(at->second);
  }

  bool is_added(const std::string& content) const { return places_.contains(content); }

  // As transformers does: flags that the config gives come before those of tokenizer.json.
  void set(const AddedToken& token) {
    const auto [at, is_new] = places_.emplace(token.content, d_.added.size());
    if (is_new) return d_.added.push_back(token);
    d_.added[at->second] = token;
  }

  // A token with a name is an added one, though tokenizer.json does not say so. One that it lacks would get an id that
  // transformers makes up.
  void name(const Json& token, const io::Origin& origin) {
    if (!token.is_string() && !token.is_object()) return;
    const JsonObject json(token.is_object() ? token : Json{{"content", token}}, origin);
    const std::string content = json.text("content", "");
    const auto id = id_of(content);
    if (!id) origin.fail("special tokens that tokenizer.json has", io::in_quotes(content));
    if (is_added(content)) return;
    Json whole = json.json();
    whole.erase("__type");
    whole["id"] = *id, whole["special"] = true;
    set(added_token(JsonObject(std::move(whole), origin)));
  }

 private:
  Description& d_;
  std::unordered_map<std::string_view, Id> ids_;
  std::unordered_map<std::string, std::size_t> places_;
};

void require_same_id(const std::string& content, const Json& id, const Tokens& tokens, const io::Origin& origin) {
  const auto ours = tokens.id_of(content);
  if (ours && id == *ours) return;
  origin.fail("added tokens with the ids of tokenizer.json", id.dump() + " for " + io::in_quotes(content));
}

// Code that comes with a model may change the text before tokenizer.json's steps see it. transformers runs it, once it
// is allowed to, and else has no tokenizer.
void require_no_code(const JsonObject& config, const io::Origin& origin) {
  const Json* map = config.find("auto_map");
  if (!map) return;
  const Json code = map->is_object() ? map->value("AutoTokenizer", Json()) : *map;
  if (code.is_null()) return;
  origin.fail("no code for the tokenizer in auto_map, for attn runs none", io::excerpt(code.dump()),
              "remove it if tokenizer.json alone gives the ids");
}

// The flag must say of a mark around a text what tokenizer.json does.
void require_mark(const JsonObject& config, const char* flag, const char* token, const std::vector<Id>& marks,
                  const Tokens& tokens, const io::Origin& origin) {
  const auto name = token_name(config, token, origin);
  const auto id = name ? tokens.id_of(*name) : std::nullopt;
  if (config.find(flag) && id) config.require(flag, std::ranges::count(marks, *id) > 0);
}

// "bos_token" and its kin, those of a model alone among them.
void read_named_tokens(const JsonObject& config, const io::Origin& origin, Description& description, Tokens& tokens) {
  const auto add = [&](const std::string& key, const Json& value) {
    tokens.name(value, origin);
    if (value.is_string()) description.named_tokens[key] = value.get<std::string>();
    if (value.is_object() && value.contains("content")) {
      description.named_tokens[key] = JsonObject(value, origin).text("content", "");
    }
  };
  for (const auto& [key, value] : config.json().items()) {
    const bool named = key.ends_with("_token") && (value.is_string() || value.is_object());
    if (named && config.has(key.c_str())) add(key, value);
  }
  if (!description.padding_token.empty() && !config.has("pad_token")) add("pad_token", description.padding_token);
  const Json* extra = config.find("extra_special_tokens");
  const Json* older = config.find("additional_special_tokens");  // counts only without the newer key
  for (const Json* more :
       {config.find("model_specific_special_tokens"), extra, extra && !extra->empty() ? nullptr : older}) {
    if (!more) continue;
    for (const auto& [key, value] : more->items()) {
      if (more->is_object()) add(key, value);
      if (more->is_array()) tokens.name(value, origin);
    }
  }
}

}  // namespace

std::string with_special_tokens(std::string_view config, const io::Origin& origin, std::string_view map,
                                const io::Origin& map_origin) {
  Description none;
  Json all = parse_tokenizer(config, origin, none);
  const JsonObject tokens(parse_tokenizer(map, map_origin, none), map_origin);
  if (!all.is_object() || all.contains("added_tokens_decoder")) return std::string(config);
  for (const auto& [key, value] : tokens.json().items()) {
    if (key.ends_with("_token")) token_name(tokens, key.c_str(), map_origin);  // throws for what is no token
    all[key] = value;
  }
  return JsonObject(std::move(all), origin).dump();
}

void add_added_tokens(std::string_view json, const io::Origin& origin, Description& description) {
  Tokens tokens(description);
  const JsonObject added(json, origin);
  for (const auto& [content, id] : added.json().items()) {
    require_same_id(content, id, tokens, origin);
    if (!tokens.is_added(content)) tokens.set({.content = content, .id = id.get<Id>(), .normalized = true});
  }
}

void add_tokenizer_config(std::string_view json, const io::Origin& origin, Description& description) {
  Description lists;
  const JsonObject config(parse_tokenizer(json, origin, lists), origin);
  config.require("added_tokens_decoder", Json::object());
  Tokens tokens(description);
  for (const AddedToken& token : lists.added) {
    require_same_id(token.content, token.id, tokens, origin);
    tokens.set(token);
  }
  if (const auto end = token_name(config, "eos_token", origin)) description.end_of_text = tokens.id_of(*end);
  if (description.end_of_text) description.ends.push_back(*description.end_of_text);
  config.require("split_special_tokens", false);
  require_no_code(config, origin);
  const std::string side = config.text("truncation_side", description.cut_left ? "left" : "right");
  if (side != "left" && side != "right") config.wrong("truncation_side", "left or right", side);
  description.cut_left = side == "left";
  require_mark(config, "add_bos_token", "bos_token", description.before, tokens, origin);
  require_mark(config, "add_eos_token", "eos_token", description.after, tokens, origin);
  require_steps(config, description);
  read_named_tokens(config, origin, description, tokens);
  const Json* chat = config.find("chat_template");
  config.finish({kTokenizerConfigPassedOver});
  if (!chat) return;
  if (chat->is_object()) {
    const JsonObject named(*chat, origin);
    for (const auto& [name, text] : chat->items()) description.chat_templates[name] = named.text(name.c_str(), "");
  } else if (chat->is_array()) {
    for (const Json& item : *chat) {
      const JsonObject named(item, origin);
      description.chat_templates[named.text("name", "")] = named.text("template", "");
    }
  } else {
    description.chat_templates["default"] = config.text("chat_template", "");
  }
}

}  // namespace attn::text
