// The vocabulary in a GGUF file's metadata. Its keys say less than tokenizer.json: the steps follow from two names.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/order.hpp"
#include "core/utf8.hpp"
#include "io/gguf_metadata.hpp"
#include "io/passed_over.hpp"
#include "text/pre_tokenizers.hpp"
#include "text/readers.hpp"
#include "text/vocabulary.hpp"

namespace attn::text {
namespace {

enum TokenType : std::int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6 };

// Texts of tokens that end what a model writes, whether or not a key names them, and which are special even where the
// file's types say otherwise. These and the marks below are as in llama.cpp.
constexpr std::string_view kEnds =
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s> <|eom_id|> "
    "<EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> <|tool_response> "
    "<\uff5cend\u2581of\u2581sentence\uff5c> [e~[";

// The keys of other marks, and the texts that stand for a key which is not there.
struct Mark {
  const char* key;
  bool ends;  // what a model writes
  std::string_view texts;
};
constexpr std::array<Mark, 8> kMarks{
    {{"eot_token_id", true, ""},
     {"eom_token_id", true, ""},
     {"fim_pre_token_id", false,
      "<|fim_prefix|> <fim-prefix> <fim_prefix> <\uff5cfim\u2581begin\uff5c> <PRE> \u2581<PRE> <|code_prefix|> "
      "<|prefix|>"},
     {"fim_suf_token_id", false,
      "<|fim_suffix|> <fim-suffix> <fim_suffix> <\uff5cfim\u2581hole\uff5c> <SUF> \u2581<SUF> <|code_suffix|> "
      "<|suffix|>"},
     {"fim_mid_token_id", false,
      "<|fim_middle|> <fim-middle> <fim_middle> <\uff5cfim\u2581end\uff5c> <MID> \u2581<MID> <|code_middle|> "
      "<|middle|>"},
     {"fim_pad_token_id", true, "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD]"},
     {"fim_rep_token_id", true, "<|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame>"},
     {"fim_sep_token_id", true, "<|file_sep|>"}}};

// Whether the texts, between blanks, have this one.
bool lists(std::string_view texts, std::string_view text) {
  for (std::size_t at = texts.find(text); at != texts.npos && !text.empty(); at = texts.find(text, at + 1)) {
    const std::size_t end = at + text.size();
    if ((at == 0 || texts[at - 1] == ' ') && (end == texts.size() || texts[end] == ' ')) return true;
  }
  return false;
}

class GgufReader {
 public:
  GgufReader(const io::Gguf& file, const io::Origin& origin)
      : keys_(file, origin, "tokenizer.ggml."), origin_(origin) {}

  Description read() {
    read_tokens();
    const std::string model = keys_.text("model");
    if (model == "gpt2") {
      read_byte_level();
    } else if (model == "gemma4") {
      read_merged_characters();
    } else if (model == "llama") {
      read_sentencepiece();
    } else if (model == "bert") {
      read_word_piece();
    } else {
      unknown("model", model);
    }
    read_marks();
    read_ends();
    read_added();
    read_strips();
    read_chat();
    keys_.finish("tokenizer.", kTokenizerGgufPassedOver);
    return std::move(d_);
  }

 private:
  [[noreturn]] void unknown(const char* key, const std::string& name) const {
    origin_.fail("a tokenizer.ggml." + std::string(key) + " that attn knows", io::in_quotes(name));
  }

  void read_tokens() {
    const auto& tokens = keys_.required<std::vector<std::string>>("tokens");
    const auto* types = keys_.find<std::vector<std::int64_t>>("token_type");
    if (types && types->size() != tokens.size()) origin_.fail("a type for each token", std::to_string(types->size()));
    types_.assign(tokens.size(), kNormal);
    if (types) types_ = *types;
    for (const std::int64_t type : types_) {
      if (type < kNormal || type > kByte) origin_.fail("tokenizer.ggml.token_type from 1 to 6", std::to_string(type));
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) d_.vocabulary.emplace_back(tokens[i], i);
  }

  // The tokens that are found before a text is cut, in the order of their ids.
  void read_added() {
    for (const auto& [content, id] : d_.vocabulary) {
      const bool special = types_[id] == kControl || types_[id] == kUnknown;
      if ((!special && types_[id] != kUserDefined) || content.empty()) continue;
      d_.added.push_back({.content = content, .id = static_cast<Id>(id), .special = special});
    }
  }

  void read_merges() {
    const auto& merges = keys_.required<std::vector<std::string>>("merges");
    if (merges.empty()) {
      origin_.fail("tokenizer.ggml.merges of at least one", "none", "convert the model with its tokenizer's merges");
    }
    for (const std::string& line : merges) d_.merges.push_back(merge_of(line, origin_));
  }

  void read_byte_level() {
    d_.byte_level = true;
    read_merges();
    const std::string name = keys_.text("pre");
    auto pre = pre_tokenizer_named(name);
    if (!pre) unknown("pre", name);
    d_.splitters = std::move(pre->splitters);
    d_.ignore_merges = pre->ignore_merges;
    begins_ = pre->begins;
    if (pre->nfc) d_.normalizers.push_back({.kind = Normalizer::Kind::nfc});
  }

  // Merges of characters, with the bytes of those that have no token.
  void read_merged_characters() {
    read_merges();
    begins_ = true;
    read_characters(false);
  }

  void read_characters(bool blank_before) {
    d_.byte_fallback = d_.bytes_decoded = d_.fuse_unknown = true;
    if (keys_.flag("add_space_prefix", blank_before)) {
      d_.normalizers.push_back({.kind = Normalizer::Kind::prepend, .to = std::string(kBlank)});
      d_.blanks_before = 1;
    }
    d_.normalizers.push_back({.kind = Normalizer::Kind::replace,
                              .to = std::string(kBlank),
                              .pattern = std::make_shared<const Regex>(Regex::literal(" "))});
    d_.replaced.emplace_back(kBlank, " ");
  }

  // Words begin with \u2581 in the file, where BERT's own has ## before what goes on.
  void read_word_piece() {
    const bool lowercase = keys_.flag("normalizer.lowercase", true);
    d_.normalizers = {{.kind = Normalizer::Kind::clean}, {.kind = Normalizer::Kind::ideographs}};
    if (keys_.flag("normalizer.strip_accents", lowercase))
      d_.normalizers.push_back({.kind = Normalizer::Kind::bert_marks});
    if (lowercase) d_.normalizers.push_back({.kind = Normalizer::Kind::lowercase});
    d_.splitters = {split_at(R"(\s)", Splitter::Behavior::removed), split_at(R"(\p{=punctuation})")};
    d_.word_piece = {.begin = std::string(kBlank), .next = ""};
    d_.word_piece_decoder = {.begin = std::string(kBlank), .next = "", .cleanup = true};
  }

  void read_sentencepiece() {
    read_scored_merges();
    begins_ = true;
    if (keys_.flag("remove_extra_whitespaces", false)) {
      d_.normalizers.push_back({.kind = Normalizer::Kind::extra_blanks});
    }
    read_characters(true);
  }

  static bool is_character(std::string_view text) {
    const Character c = first_character(text);
    return c.valid && c.length == text.size();
  }

  // SentencePiece merges the pair whose result has the highest score, and of equal ones the leftmost: every way to make
  // a token of two is a merge.
  void read_scored_merges() {
    const auto& scores = keys_.required<std::vector<double>>("scores");
    scored_ = true;
    if (scores.size() != d_.vocabulary.size()) origin_.fail("a score for each token", std::to_string(scores.size()));
    if (std::ranges::any_of(scores, [](double score) { return std::isnan(score); })) {
      origin_.fail("scores that are numbers", "NaN");
    }
    const auto token_of = [&](std::size_t id) -> std::string_view { return d_.vocabulary[id].first; };
    const std::vector<std::size_t> sorted =
        order_of(d_.vocabulary.size(), [&](std::size_t a, std::size_t b) { return token_of(a) < token_of(b); });
    const auto id_of = [&](std::string_view token) -> std::optional<std::size_t> {
      const auto at = std::ranges::lower_bound(sorted, token, {}, token_of);
      return at != sorted.end() && token_of(*at) == token ? std::optional(*at) : std::nullopt;
    };
    struct Pair {
      double score;
      std::size_t left, right;
    };
    std::vector<Pair> pairs;
    for (const auto& [token, id] : d_.vocabulary) {
      if (token.size() > kLongestToken) continue;
      for (std::size_t cut = 1; cut < token.size(); ++cut) {
        const std::string_view first = std::string_view(token).substr(0, cut),
                               second = std::string_view(token).substr(cut);
        const auto left = id_of(first);
        if (!left && !is_character(first)) continue;
        const auto right = id_of(second);
        if (left && right) {
          pairs.push_back({scores[id], *left, *right});
        } else if (types_[id] == kNormal && (right || is_character(second))) {
          // SentencePiece joins characters that are no tokens, too; here they are bytes before anything is joined.
          origin_.fail("a token for each character of " + io::in_quotes(token),
                       "none for " + io::in_quotes(left ? second : first));
        }
      }
    }
    double last = NAN;
    for (const std::size_t i :
         order_of(pairs.size(), [&](std::size_t a, std::size_t b) { return pairs[a].score > pairs[b].score; })) {
      const auto rank = static_cast<std::uint32_t>(d_.merges.size());
      d_.merges.emplace_back(token_of(pairs[i].left), token_of(pairs[i].right));
      d_.merge_order.push_back(pairs[i].score == last ? d_.merge_order.back() : rank);
      last = pairs[i].score;
    }
  }

  // The id that a key has, or else the one that all models of its kind have, where the vocabulary goes so far.
  std::optional<Id> id_at(const char* key, std::optional<Id> otherwise = {}) const {
    const auto* id = keys_.find<std::int64_t>(key);
    if (!id) return otherwise && *otherwise < d_.vocabulary.size() ? otherwise : std::nullopt;
    if (*id < 0 || static_cast<std::uint64_t>(*id) >= d_.vocabulary.size()) {
      origin_.fail(std::string(key) + " in the vocabulary", std::to_string(*id));
    }
    return static_cast<Id>(*id);
  }

  void read_marks() {
    if (d_.word_piece) {
      const auto begin = id_at("bos_token_id", id_at("cls_token_id", 101)), end = id_at("seperator_token_id", 102);
      if (begin) d_.before = {*begin};
      if (end) d_.after = {*end};
      // Converters' flags say what stands between two texts as well: llama.cpp puts both marks around each, anyway.
      for (const char* const key : {"add_bos_token", "add_eos_token", "add_sep_token"}) keys_.flag(key, true);
      const auto unknown = id_at("unknown_token_id", 100);
      if (unknown) d_.unknown = d_.vocabulary[*unknown].first;
      return;
    }
    const bool sentencepiece = d_.merges.empty() || scored_;
    const auto begin = id_at("bos_token_id", sentencepiece ? std::optional<Id>(1) : std::nullopt);
    d_.end_of_text = id_at("eos_token_id", sentencepiece ? std::optional<Id>(2) : std::nullopt);
    if (keys_.flag("add_bos_token", begins_)) {
      if (!begin) origin_.fail("tokenizer.ggml.bos_token_id, as texts begin with it", "none");
      d_.before = {*begin};
    }
    if (keys_.flag("add_eos_token", false)) {
      if (!d_.end_of_text) origin_.fail("tokenizer.ggml.eos_token_id, as texts end with it", "none");
      d_.after = {*d_.end_of_text};
    }
    // A byte that GPT-2's alphabet lacks is left out, as models of this kind were trained.
    const auto unknown = id_at("unknown_token_id", sentencepiece ? std::optional<Id>(0) : std::nullopt);
    if (unknown && !d_.byte_level) d_.unknown = d_.vocabulary[*unknown].first;
  }

  bool has_token(std::string_view content) const {
    return std::ranges::any_of(d_.vocabulary, [&](const auto& entry) { return entry.first == content; });
  }

  // Reads which tokens end a text by llama.cpp's rules: those that keys name, and those that are known by their text.
  // The latter are special, as marks are, whatever the file's types say.
  void read_ends() {
    const auto add = [&](Id id) {
      const auto at = std::ranges::lower_bound(d_.ends, id);
      if (at == d_.ends.end() || *at != id) d_.ends.insert(at, id);
    };
    for (const Mark& mark : kMarks) {
      auto id = id_at(mark.key);
      for (const auto& [content, token] : d_.vocabulary) {
        if (id) break;
        if (!lists(mark.texts, content)) continue;
        id = static_cast<Id>(token);
        types_[token] = kControl;
      }
      if (id && mark.ends) add(*id);
    }
    if (d_.end_of_text) add(*d_.end_of_text);
    // Where a message is not the end of an answer, and where </s> is a tag of HTML.
    const bool messages =
        (has_token("<|return|>") && has_token("<|call|>")) || (has_token("<|calls|>") && has_token("<|flush|>"));
    const bool tag = has_token("<|tool_response>") || has_token("<|plamo:eos|>");
    for (const auto& [content, id] : d_.vocabulary) {
      if (!lists(kEnds, content)) continue;
      if ((messages && content == "<|end|>") || (tag && content == "</s>")) continue;
      types_[id] = kControl;
      add(static_cast<Id>(id));
    }
  }

  // Phi-3's special tokens take the white space after them, which a GGUF file tells by nothing but the model's name.
  void read_strips() {
    const auto* name = keys_.find<std::string>("general.name");
    std::string small = name ? *name : "";
    std::ranges::transform(small, small.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
    if (small.find("phi-3") == small.npos && small.find("phi3") == small.npos) return;
    for (AddedToken& token : d_.added) {
      token.rstrip = token.content != "<unk>" && token.content != "<s>" && token.content != "<|endoftext|>";
    }
  }

  void read_chat() {
    if (const auto* chat = keys_.find<std::string>("tokenizer.chat_template")) d_.chat_templates["default"] = *chat;
    if (const auto* names = keys_.find<std::vector<std::string>>("tokenizer.chat_templates")) {
      for (const std::string& name : *names) {
        if (const auto* chat = keys_.find<std::string>("tokenizer.chat_template." + name))
          d_.chat_templates[name] = *chat;
      }
    }
    constexpr std::pair<const char*, const char*> tokens[] = {
        {"bos_token_id", "bos_token"},     {"eos_token_id", "eos_token"},       {"unknown_token_id", "unk_token"},
        {"padding_token_id", "pad_token"}, {"seperator_token_id", "sep_token"}, {"cls_token_id", "cls_token"},
        {"mask_token_id", "mask_token"}};
    for (const auto& [key, name] : tokens) {
      if (const auto id = id_at(key)) d_.named_tokens[name] = d_.vocabulary[*id].first;
    }
  }

  static constexpr std::size_t kLongestToken = 256;  // bytes; it can be made of two in as many ways

  io::GgufMetadata keys_;
  const io::Origin& origin_;
  Description d_;
  std::vector<std::int64_t> types_;       // of each token
  bool begins_ = false, scored_ = false;  // what a text begins with where no key says so; SentencePiece's scores
};

}  // namespace

Description describe_gguf(const io::Gguf& file, const io::Origin& origin) { return GgufReader(file, origin).read(); }

}  // namespace attn::text
