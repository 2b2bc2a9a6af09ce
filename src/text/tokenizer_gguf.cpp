// The vocabulary in a GGUF file's metadata. Its keys say less than tokenizer.json: the steps follow from two names.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "text/readers.hpp"
#include "text/vocabulary.hpp"

namespace attn::text {
namespace {

enum TokenType : std::int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4 };

class Reader {
 public:
  Reader(const io::Gguf& file, const io::Origin& origin) : file_(file), origin_(origin) {}

  Description read() {
    read_tokens();
    const std::string model = required<std::string>("model");
    if (model == "gpt2") {
      read_byte_level();
    } else if (model == "llama") {
      read_sentencepiece();
    } else {
      unknown("model", model);
    }
    read_ends();
    if (const auto* chat = find<std::string>("tokenizer.chat_template")) d_.chat_template = *chat;
    return std::move(d_);
  }

 private:
  // Null where there is none, or one of another kind.
  template <class T>
  const T* find(const std::string& key) const {
    const auto at = file_.metadata().find(key);
    return at == file_.metadata().end() ? nullptr : std::get_if<T>(&at->second);
  }

  template <class T>
  const T& required(const char* key) const {
    const std::string whole = std::string("tokenizer.ggml.") + key;
    const T* value = find<T>(whole);
    if (!value) origin_.fail(whole, "none, or one of another kind");
    return *value;
  }

  [[noreturn]] void unknown(const char* key, const std::string& name) const {
    origin_.fail("a tokenizer.ggml." + std::string(key) + " that attn knows", io::in_quotes(name));
  }

  void read_tokens() {
    const auto& tokens = required<std::vector<std::string>>("tokens");
    const auto* types = find<std::vector<std::int64_t>>("tokenizer.ggml.token_type");
    if (types && types->size() != tokens.size()) origin_.fail("a type for each token", std::to_string(types->size()));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      d_.vocabulary.emplace_back(tokens[i], i);
      const std::int64_t type = types ? (*types)[i] : kNormal;
      const bool special = type == kControl || type == kUnknown;
      if ((!special && type != kUserDefined) || tokens[i].empty()) continue;
      d_.added.push_back({.content = tokens[i], .id = static_cast<Id>(i), .special = special});
    }
  }

  void read_byte_level() {
    d_.byte_level = true;
    const auto& merges = required<std::vector<std::string>>("merges");
    if (merges.empty()) {
      origin_.fail("tokenizer.ggml.merges of at least one", "none", "convert the model with its tokenizer's merges");
    }
    for (const std::string& line : merges) {
      d_.merges.push_back(merge_of(line, origin_));
    }
    const Splitter gpt2{.kind = Splitter::Kind::pattern, .pattern = &gpt2_pattern()};
    const std::string pre = required<std::string>("pre");
    if (pre == "gpt-2") {
      d_.splitters = {gpt2};
    } else if (pre == "smollm" || pre == "starcoder" || pre == "refact") {
      d_.splitters = {{.kind = Splitter::Kind::digits}, gpt2};
    } else if (pre == "llama-bpe" || pre == "llama3" || pre == "smaug-bpe") {
      d_.splitters = {{.kind = Splitter::Kind::pattern, .pattern = &llama3_pattern()}};
      d_.ignore_merges = true;
    } else if (pre == "qwen2") {
      d_.normalizers = {{Normalizer::Kind::nfc, "", ""}};
      d_.splitters = {{.kind = Splitter::Kind::pattern, .pattern = &qwen_pattern()}};
    } else {
      unknown("pre", pre);
    }
  }

  void read_sentencepiece() {
    read_scored_merges();
    d_.byte_fallback = d_.bytes_decoded = d_.fuse_unknown = true;
    const bool* prefix = find<bool>("tokenizer.ggml.add_space_prefix");
    if (!prefix || *prefix) {
      d_.normalizers.push_back({Normalizer::Kind::prepend, "", std::string(kBlank)});
      d_.blanks_before = 1;
    }
    d_.normalizers.push_back({Normalizer::Kind::replace, " ", std::string(kBlank)});
    d_.replaced.emplace_back(kBlank, " ");
  }

  // SentencePiece merges the pair whose result has the highest score: every way to make a token of two is a merge. The
  // order of equal scores is the one that transformers gives them.
  void read_scored_merges() {
    const auto& scores = required<std::vector<double>>("scores");
    if (scores.size() != d_.vocabulary.size()) origin_.fail("a score for each token", std::to_string(scores.size()));
    if (std::ranges::any_of(scores, [](double score) { return std::isnan(score); })) {
      origin_.fail("scores that are numbers", "NaN");
    }
    std::vector<std::pair<std::string_view, std::size_t>> sorted;
    for (const auto& [token, id] : d_.vocabulary) sorted.emplace_back(token, id);
    std::ranges::sort(sorted);
    const auto id_of = [&](std::string_view token) -> std::optional<std::size_t> {
      const auto at = std::ranges::lower_bound(sorted, token, {}, [](const auto& entry) { return entry.first; });
      return at != sorted.end() && at->first == token ? std::optional(at->second) : std::nullopt;
    };
    struct Pair {
      double score;
      std::size_t token, left_size, left, right;
    };
    std::vector<Pair> pairs;
    for (const auto& [token, id] : d_.vocabulary) {
      if (token.size() > kLongestToken) continue;
      for (std::size_t cut = 1; cut < token.size(); ++cut) {
        const auto left = id_of(std::string_view(token).substr(0, cut));
        const auto right = left ? id_of(std::string_view(token).substr(cut)) : std::nullopt;
        if (right) pairs.push_back({scores[id], id, cut, *left, *right});
      }
    }
    std::ranges::stable_sort(pairs, [](const Pair& a, const Pair& b) {
      return a.score != b.score ? a.score > b.score : a.left_size > b.left_size;
    });
    for (const Pair& pair : pairs) {
      d_.merges.emplace_back(d_.vocabulary[pair.left].first, d_.vocabulary[pair.right].first);
    }
  }

  std::optional<Id> end(const char* key) const {
    const auto* id = find<std::int64_t>(std::string("tokenizer.ggml.") + key);
    if (!id) return {};
    if (*id < 0 || static_cast<std::uint64_t>(*id) >= d_.vocabulary.size()) {
      origin_.fail(std::string(key) + " in the vocabulary", std::to_string(*id));
    }
    return static_cast<Id>(*id);
  }

  void read_ends() {
    const auto wanted = [&](const char* key, bool otherwise) {
      const bool* value = find<bool>(std::string("tokenizer.ggml.") + key);
      return value ? *value : otherwise;
    };
    const auto begin = end("bos_token_id");
    d_.end_of_text = end("eos_token_id");
    if (begin && wanted("add_bos_token", !d_.byte_level)) d_.before = {*begin};
    if (d_.end_of_text && wanted("add_eos_token", false)) d_.after = {*d_.end_of_text};
    // A byte that GPT-2's alphabet lacks is left out, as models of this kind were trained.
    const auto unknown_id = end("unknown_token_id");
    if (unknown_id && !d_.byte_level) d_.unknown = d_.vocabulary[*unknown_id].first;
  }

  static constexpr std::size_t kLongestToken = 256;  // bytes; it can be made of two in as many ways

  const io::Gguf& file_;
  const io::Origin& origin_;
  Description d_;
};

}  // namespace

Description describe_gguf(const io::Gguf& file, const io::Origin& origin) { return Reader(file, origin).read(); }

}  // namespace attn::text
