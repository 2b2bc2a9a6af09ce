// tokenizer.json, as Hugging Face's tokenizers package writes it. What is not known here is refused by its name: a
// tokenizer that is nearly right gives wrong ids without a word.
#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "io/passed_over.hpp"
#include "text/readers.hpp"
#include "text/tokenizer_lists.hpp"

namespace attn::text {
namespace {

using io::JsonObject;
using Json = JsonObject::Json;

constexpr std::uint64_t kNoPlace = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kMostReplacements = 4;  // each may make a text four times as long
constexpr std::size_t kMostSteps = 100;       // of one part; those that cut a text are followed in one another

// Reads the parts of a file; a part that has a list of parts is those.
class Reader {
 public:
  Reader(const Json& root, const io::Origin& origin, Description& description)
      : origin_(origin), root_(root, origin), d_(description) {}

  void read() {
    const JsonObject model = part(root_, "model");
    read_model(model);
    model.finish({kTokenizerPassedOver});
    for (const Json& token : list(root_, "added_tokens")) origin_.fail("objects in added_tokens", token.type_name());
    each("normalizer", "normalizers", [&](const JsonObject& step) { read_normalizer(step); });
    each("pre_tokenizer", "pretokenizers", [&](const JsonObject& step) { read_splitter(step); });
    each("post_processor", "processors", [&](const JsonObject& step) { read_template(step); });
    if (!root_.find("decoder")) origin_.fail("a decoder", "none");
    each("decoder", "decoders", [&](const JsonObject& step) { read_decoder(step); });
    if (root_.find("padding")) d_.padding_token = part(root_, "padding").text("pad_token", "");
    if (root_.find("truncation")) {
      const JsonObject cut = part(root_, "truncation");
      const std::string side = cut.text("direction", "Right");
      if (side != "Left" && side != "Right") cut.wrong("direction", "Left or Right", side);
      d_.cut_left = side == "Left";
    }
    root_.finish({kTokenizerPassedOver});
    require_beginning();
    if (d_.byte_level != byte_level_decoder_)
      origin_.fail("ByteLevel before and after the model, or at neither", "one");
    // The package counts and cuts the letters that stand for bytes, and WordPiece here the text's own characters.
    if (d_.byte_level && d_.word_piece) unknown("pre_tokenizer before WordPiece", "ByteLevel");
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
    const auto whole = [&](const JsonObject& step) {
      read(step);
      step.finish({kTokenizerPassedOver});
    };
    if (json.text("type", "") != "Sequence") return whole(json);
    const Json all = list(json, members);
    if (all.size() > kMostSteps) json.wrong(members, "a list of at most 100 steps", all.size());
    for (const Json& member : all) whole(JsonObject(member, origin_));
    json.finish({});
  }

  [[noreturn]] void unknown(const std::string& part, const std::string& type) const {
    constexpr std::size_t most = 400;  // a pattern is told whole
    origin_.fail("a " + part + " that attn knows", type.size() < most ? '"' + type + '"' : io::in_quotes(type));
  }

  std::string short_text(const JsonObject& json, const char* key, std::size_t most = kLongestText) const {
    std::string text = json.text(key, "");
    if (text.empty() || text.size() > most) json.wrong(key, "a text of 1 to " + std::to_string(most) + " bytes", text);
    return text;
  }

  // The package asks whether a piece begins where the text did before the normalizers, which here leave no trace.
  void require_beginning() const {
    const bool first = std::ranges::any_of(
        d_.splitters, [](const Splitter& step) { return step.prepend == Splitter::Prepend::first; });
    if (first && !d_.normalizers.empty()) origin_.fail("no normalizer beside prepend_scheme \"first\"", "one");
  }

  // {"String": "▁"}; a pattern of another kind is left to the caller.
  std::string literal(const JsonObject& json) const {
    const JsonObject pattern = part(json, "pattern");
    if (!pattern.find("String")) unknown("pattern", pattern.text("Regex", ""));
    return short_text(pattern, "String");
  }

  void read_model(const JsonObject& model) {
    const std::string type = model.text("type", model.find("merges") ? "BPE" : "");
    if (type != "BPE" && type != "WordPiece") unknown("model", type);
    if (!model.has("vocab") || d_.vocabulary.empty()) model.wrong("vocab", "an object of ids", nullptr);
    if (model.find("unk_token")) d_.unknown = model.text("unk_token", "");
    if (type == "WordPiece") {
      const auto most = static_cast<std::size_t>(model.number("max_input_chars_per_word", 100, 1, 1000));
      d_.word_piece = {.next = model.text("continuing_subword_prefix", "##"), .most_characters = most};
      return;
    }
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
    if (old == "never" && scheme != old) json.wrong("prepend_scheme", "never, as add_prefix_space is false", scheme);
    if (std::exchange(metaspaces_, true)) unknown("pre_tokenizer after another", "Metaspace");
    d_.splitters.push_back({.kind = Splitter::Kind::metaspace, .prepend = at->second});
    if (!json.flag("split", true)) return;
    d_.splitters.push_back({.pattern = std::make_shared<const Regex>(Regex::literal(kBlank)),
                            .behavior = Splitter::Behavior::merged_with_next});
  }

  // The ids that stand before and after one text.
  void read_template(const JsonObject& json) {
    const std::string type = json.text("type", "");
    if (type == "ByteLevel") return;  // it moves places in the text, not ids
    if (std::exchange(templates_, true)) unknown("post_processor after another", type);
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      d_.before.push_back(named_id(json, "cls"));
      d_.after.push_back(named_id(json, "sep"));
      return;
    }
    if (type != "TemplateProcessing") unknown("post_processor", type);
    const JsonObject tokens = part(json, "special_tokens");
    bool after = false;
    for (const Json& item : list(json, "single")) {
      const JsonObject member(item, origin_);
      const bool is_text = member.find("Sequence") != nullptr;
      const JsonObject piece = part(member, is_text ? "Sequence" : "SpecialToken");
      piece.require("type_id", 0);  // of no other are the token types that an encoder adds up here
      if (is_text) {
        piece.require("id", "A");  // which alone is there without a pair
        if (std::exchange(after, true)) json.wrong("single", "a template with one text", item);
        continue;
      }
      const std::string name = piece.text("id", "");
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

  // Decoders are steps whose order matters. attn's is this: one that makes text of each token, or replacements and then
  // bytes; then Fuse, and then the blanks that are taken from the text's beginning.
  void read_decoder(const JsonObject& json) {
    const std::string type = json.text("type", "");
    const auto next = [&](Decoded place, bool fits) {
      if (!fits) unknown("decoder after " + decoder_, type);
      decoded_ = place, decoder_ = type;
    };
    if (type == "ByteLevel") {
      next(kText, decoded_ == kNone);
      byte_level_decoder_ = true;
    } else if (type == "Replace") {
      next(kReplaced, decoded_ <= kReplaced);
      d_.replaced.emplace_back(literal(json), json.text("content", ""));
      if (d_.replaced.size() > kMostReplacements) origin_.fail("at most 4 replacements", "more");
    } else if (type == "ByteFallback") {
      next(kText, decoded_ <= kReplaced);
      d_.bytes_decoded = true;
    } else if (type == "WordPiece") {
      next(kText, decoded_ == kNone);
      d_.word_piece_decoder = {.next = json.text("prefix", "##"), .cleanup = json.flag("cleanup", true)};
    } else if (type == "Metaspace") {
      next(kText, decoded_ == kNone);
      json.require("replacement", std::string(kBlank));
      d_.replaced.emplace_back(kBlank, " ");
      d_.metaspace_decoder = json.flag("add_prefix_space", true) && json.text("prepend_scheme", "always") != "never";
    } else if (type == "Fuse") {
      next(kFused, decoded_ != kFused);
    } else if (type == "Strip" && decoded_ == kFused) {
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
  bool byte_level_decoder_ = false, templates_ = false, metaspaces_ = false;
  enum Decoded : std::uint8_t { kNone, kReplaced, kText, kFused } decoded_ = kNone;
  std::string decoder_;  // the last one that was read
};

// The tokenizers package passes over the ids that stand beside added tokens: a token of the vocabulary keeps its own,
// and the others are numbered from the vocabulary's end on, in their order.
void require_ids_of_package(const Description& d, const io::Origin& origin) {
  std::unordered_map<std::string_view, std::uint64_t> ids;
  for (const AddedToken& token : d.added) ids.emplace(token.content, kNoPlace);
  for (const auto& [content, id] : d.vocabulary) {
    if (const auto at = ids.find(content); at != ids.end()) at->second = id;
  }
  std::uint64_t next = d.vocabulary.size();
  for (const AddedToken& token : d.added) {
    std::uint64_t& id = ids[token.content];
    if (id == kNoPlace) id = next;
    next = std::max(next, id + 1);
    if (token.id != id) {
      origin.fail("the id " + std::to_string(id) + " of the added token " + io::in_quotes(token.content) +
                      ", as the tokenizers package numbers it",
                  std::to_string(token.id));
    }
  }
}

}  // namespace

Description describe_tokenizer_json(std::string_view json, const io::Origin& origin) {
  Description description;
  const Json root = parse_tokenizer(json, origin, description);
  Reader(root, origin, description).read();
  require_ids_of_package(description, origin);
  return description;
}

}  // namespace attn::text
