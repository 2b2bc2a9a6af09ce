// The tokenizers of released models: a description's steps, one after the other.
#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "attn/error.hpp"
#include "attn/gguf.hpp"
#include "attn/tokenizer.hpp"
#include "core/order.hpp"
#include "text/added_tokens.hpp"
#include "text/merger.hpp"
#include "text/normalize.hpp"
#include "text/readers.hpp"
#include "text/vocabulary.hpp"
#include "text/word_piece.hpp"

namespace attn {
namespace {

using text::Id;

constexpr std::string_view kBpe = "BPETokenizer";

// The tokens that are looked for in the text as it is, or else in its normal form, which they are brought into, too.
text::AddedTokens added_tokens(const text::Description& description, bool normal_form) {
  std::vector<text::AddedTokens::Wanted> wanted;
  for (const text::AddedToken& token : description.added) {
    if (token.normalized != normal_form) continue;
    wanted.emplace_back(normal_form ? text::normalized(token.content, description.normalizers) : token.content, &token);
  }
  return text::AddedTokens(wanted);
}

}  // namespace

struct BPETokenizer::Table {
  Table(text::Description d, const io::Origin& origin)
      : description(std::move(d)),
        vocabulary(description, origin),
        as_written(added_tokens(description, false)),
        in_normal_form(added_tokens(description, true)) {
    description.vocabulary = {}, description.merges = {};
    const auto& added = description.added;
    for (const std::size_t i :
         order_of(added.size(), [&](std::size_t a, std::size_t b) { return added[a].id < added[b].id; })) {
      if (added[i].special) special.push_back(added[i].id);
    }
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  text::Description description;  // its steps; the vocabulary has the rest
  text::Vocabulary vocabulary;
  text::AddedTokens as_written, in_normal_form;
  std::vector<std::int64_t> special;
};

BPETokenizer::BPETokenizer(std::shared_ptr<const Table> table) : table_(std::move(table)) {}

BPETokenizer::BPETokenizer(std::string_view vocab_json, std::string_view merges_txt)
    : table_(std::make_shared<const Table>(text::describe_gpt2(vocab_json, merges_txt),
                                           io::Origin{kBpe, "vocab.json and merges.txt"})) {}

BPETokenizer BPETokenizer::parse(std::string_view tokenizer_json, std::string_view tokenizer_config_json,
                                 std::string_view source) {
  const io::Origin origin{kBpe, source};
  text::Description description = text::describe_tokenizer_json(tokenizer_json, origin);
  if (!tokenizer_config_json.empty()) {
    text::add_tokenizer_config(tokenizer_config_json, {kBpe, "tokenizer_config.json"}, description);
  }
  return BPETokenizer(std::make_shared<const Table>(std::move(description), origin));
}

BPETokenizer BPETokenizer::parse(const io::Gguf& file) {
  const io::Origin origin{kBpe, "the GGUF file's metadata"};
  return BPETokenizer(std::make_shared<const Table>(text::describe_gguf(file, origin), origin));
}

BPETokenizer BPETokenizer::load(const std::filesystem::path& path) {
  if (io::is_gguf(path)) return parse(io::Gguf::open(path));
  auto [description, source] = text::describe_files(path);
  return BPETokenizer(std::make_shared<const Table>(std::move(description), io::Origin{kBpe, source}));
}

std::vector<std::int64_t> BPETokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const text::Description& steps = table_->description;
  const text::Vocabulary& vocabulary = table_->vocabulary;
  std::vector<std::int64_t> ids;
  text::Merger merger(vocabulary);
  text::Cutter cutter(steps.splitters);
  const auto take_piece = [&](std::string_view piece) {
    if (steps.word_piece) return text::append_word_pieces(vocabulary, *steps.word_piece, piece, ids);
    const auto whole = steps.ignore_merges ? vocabulary.find_piece(piece) : std::nullopt;
    if (whole) return ids.push_back(*whole);
    merger.merge(piece, ids);
  };
  if (options.add_special_tokens) ids.insert(ids.end(), steps.before.begin(), steps.before.end());
  bool at_start = true;
  for (const text::Part& outer : table_->as_written.split(text)) {
    if (outer.token) ids.push_back(outer.token->id);
    const std::string normal = outer.token ? "" : text::normalized(outer.text, steps.normalizers);
    for (const text::Part& inner : table_->in_normal_form.split(normal)) {
      if (inner.token) ids.push_back(inner.token->id);
      if (!inner.token) cutter.cut(inner.text, at_start, take_piece);
      at_start = false;
    }
    at_start = false;
  }
  const std::size_t after = options.add_special_tokens ? steps.after.size() : 0;
  const std::size_t room = options.most - std::min(after, options.most);
  if (steps.cut_left && ids.size() > room) {
    const std::size_t before = options.add_special_tokens ? steps.before.size() : 0;
    const auto first = ids.begin() + static_cast<std::ptrdiff_t>(before);
    ids.erase(first, first + static_cast<std::ptrdiff_t>(ids.size() - std::max(room, before)));
  }
  ids.resize(std::min(ids.size(), room));
  if (options.add_special_tokens) ids.insert(ids.end(), steps.after.begin(), steps.after.end());
  return ids;
}

std::string BPETokenizer::decode(std::int64_t id) const {
  if (id < 0 || id >= vocab_size()) {
    throw Error(Error::Kind::argument, "BPETokenizer::decode", "ids from 0 to " + std::to_string(vocab_size() - 1),
                std::to_string(id));
  }
  return table_->vocabulary.bytes_of(static_cast<Id>(id));
}

std::string BPETokenizer::decode_first(std::int64_t id) const {
  const std::string inside = decode(id);
  const auto& decoder = table_->description.word_piece_decoder;
  const std::string& content = table_->vocabulary.content_of(static_cast<Id>(id));
  if (table_->description.metaspace_decoder) return text::replaced_all(content, text::kBlank, "");
  return decoder ? text::decoded_first(content, *decoder) : inside;
}

std::int64_t BPETokenizer::vocab_size() const noexcept { return static_cast<std::int64_t>(table_->vocabulary.size()); }

std::optional<std::int64_t> BPETokenizer::end_of_text() const {
  const auto id = table_->description.end_of_text;
  return id ? std::optional<std::int64_t>(*id) : std::nullopt;
}

std::vector<std::int64_t> BPETokenizer::end_ids() const {
  return {table_->description.ends.begin(), table_->description.ends.end()};
}

bool BPETokenizer::is_special(std::int64_t id) const { return std::ranges::binary_search(table_->special, id); }

std::optional<std::int64_t> BPETokenizer::unknown_id() const {
  const text::Id id = table_->vocabulary.unknown();
  return id == text::kNoId ? std::nullopt : std::optional<std::int64_t>(id);
}

std::size_t BPETokenizer::blanks_before() const { return table_->description.blanks_before; }

std::optional<std::int64_t> BPETokenizer::id_of(std::string_view token) const {
  const auto id = table_->vocabulary.find(token);
  return id ? std::optional<std::int64_t>(*id) : std::nullopt;
}

std::vector<std::int64_t> BPETokenizer::special_ids() const { return table_->special; }

std::string BPETokenizer::chat_template(const std::string& name) const {
  const auto& all = table_->description.chat_templates;
  const auto at = all.find(name);
  return at == all.end() ? std::string() : at->second;
}

std::map<std::string, std::string> BPETokenizer::named_tokens() const { return table_->description.named_tokens; }

}  // namespace attn
