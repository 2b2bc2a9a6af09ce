#include "text/vocabulary.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "core/lasting.hpp"
#include "core/order.hpp"
#include "core/utf8.hpp"
#include "text/normalize.hpp"

namespace attn::text {
namespace {

constexpr std::uint64_t kMostIds = kNoRank;

// The bytes that a token of letters stands for; one with other characters stands for itself.
std::string bytes_of_letters(std::string_view token) {
  static const auto byte_of = [] {
    std::array<int, 512> table;
    table.fill(-1);
    for (int byte = 0; byte < 256; ++byte)
      table[first_character(letter_of(static_cast<std::uint8_t>(byte))).code] = byte;
    return table;
  }();
  std::string bytes;
  for (std::string_view rest = token; !rest.empty();) {
    const Character c = first_character(rest);
    if (!c.valid || c.code >= byte_of.size() || byte_of[c.code] < 0) return std::string(token);
    bytes.push_back(static_cast<char>(byte_of[c.code]));
    rest.remove_prefix(c.length);
  }
  return bytes;
}

// "<0xE2>", as SentencePiece names a byte.
std::string byte_name(std::uint8_t byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string name = "<0x00>";
  name[3] = digits[byte >> 4], name[4] = digits[byte & 15];
  return name;
}

std::optional<std::uint8_t> named_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return {};
  for (int byte = 0; byte < 256; ++byte) {
    if (byte_name(static_cast<std::uint8_t>(byte)).substr(3, 2) == token.substr(3, 2))
      return static_cast<std::uint8_t>(byte);
  }
  return {};
}

// As the tokenizers package does to each token, this takes out the blanks that people do not write.
std::string without_blanks_before_signs(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> changes[] = {
      {" .", "."},   {" ?", "?"},   {" !", "!"},           {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" 's", "'s"}, {" do not", " don't"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : changes) text = replaced_all(text, from, to);
  return text;
}

// BERT's tokens inside a text; `added` tokens begin words, whatever they begin with.
std::string decoded_word_piece(const std::string& token, const WordPieceDecoder& decoder, bool added) {
  const bool goes_on =
      !added && (decoder.begin.empty() ? token.starts_with(decoder.next) : !token.starts_with(decoder.begin));
  const std::size_t mark = goes_on ? decoder.next.size() : token.starts_with(decoder.begin) ? decoder.begin.size() : 0;
  const std::string text = std::string(goes_on ? 0 : 1, ' ').append(token, mark);
  return decoder.cleanup ? without_blanks_before_signs(text) : text;
}

// A token as a text has it.
std::string decoded(const std::string& token, const Description& description) {
  if (description.word_piece_decoder) return decoded_word_piece(token, *description.word_piece_decoder, false);
  if (description.byte_level) return bytes_of_letters(token);
  std::string text = token;
  for (const auto& [from, to] : description.replaced) text = replaced_all(text, from, to);
  const auto byte = description.bytes_decoded ? named_byte(text) : std::nullopt;
  return byte ? std::string(1, static_cast<char>(*byte)) : text;
}

std::optional<Id> look_up(std::string_view content, const std::vector<Id>& order,
                          const std::vector<std::string>& contents) {
  const auto at = std::ranges::lower_bound(order, content, {}, [&](Id id) { return std::string_view(contents[id]); });
  return at != order.end() && contents[*at] == content ? std::optional(*at) : std::nullopt;
}

}  // namespace

std::string decoded_first(const std::string& token, const WordPieceDecoder& decoder) {
  const std::string text = token.substr(token.starts_with(decoder.begin) ? decoder.begin.size() : 0);
  return decoder.cleanup ? without_blanks_before_signs(text) : text;
}

std::string letter_of(std::uint8_t byte) {
  const auto printable = [](int b) { return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae; };
  std::uint32_t letter = byte;
  if (!printable(byte)) {
    letter = 0x100;
    for (int b = 0; b < byte; ++b) letter += printable(b) ? 0 : 1;
  }
  std::string text;
  append_utf8(text, letter);
  return text;
}

Vocabulary::Vocabulary(const Description& description, const io::Origin& origin)
    : byte_level_(description.byte_level), fuse_unknown_(description.fuse_unknown) {
  take_tokens(description, origin);
  if (description.unknown) {
    unknown_ = look_up(*description.unknown, model_by_content_, contents_).value_or(kNoId);
  }
  if (description.word_piece && unknown_ == kNoId) origin.fail("a token for unknown words", "none");
  take_characters();
  take_bytes(description, origin);
  const bool unnamed = description.unknown && unknown_ == kNoId;
  if (unnamed && std::ranges::find(byte_ids_, kNoId) != byte_ids_.end()) {
    origin.fail("unk_token in the vocabulary, as characters may be unknown", io::in_quotes(*description.unknown));
  }
  take_merges(description, origin);
}

void Vocabulary::take_tokens(const Description& description, const io::Origin& origin) {
  // Some vocabularies leave ids out, but none leaves out most of them.
  const std::uint64_t count = description.vocabulary.size() + description.added.size();
  const std::uint64_t limit = std::min(2 * count + 65536, kMostIds);
  std::vector<bool> used;
  const auto take = [&](const std::string& content, std::uint64_t id) {
    if (id >= limit)
      origin.fail("ids below " + std::to_string(limit), std::to_string(id) + " for " + io::in_quotes(content));
    if (id >= contents_.size()) contents_.resize(id + 1), bytes_.resize(id + 1), used.resize(id + 1);
    if (used[id]) origin.fail("every id once", std::to_string(id) + " for " + io::in_quotes(content) + ", too");
    used[id] = true;
    contents_[id] = content, bytes_[id] = decoded(content, description);
  };
  const auto sorted = [&](const std::vector<Id>& ids) {
    std::vector<Id> result;
    for (const std::size_t i :
         order_of(ids.size(), [&](std::size_t a, std::size_t b) { return contents_[ids[a]] < contents_[ids[b]]; })) {
      const std::string& content = contents_[ids[i]];
      if (!result.empty() && contents_[result.back()] == content)
        origin.fail("every token once", io::in_quotes(content) + " twice");
      result.push_back(ids[i]);
    }
    return result;
  };
  for (const auto& [content, id] : description.vocabulary) {
    take(content, id);
    model_by_content_.push_back(static_cast<Id>(id));
  }
  model_by_content_ = sorted(model_by_content_);
  by_content_ = model_by_content_;
  std::map<std::string, Id> found_by;  // what is looked for in normalized text
  for (const AddedToken& token : description.added) {
    if (used.size() <= token.id || !used[token.id] || contents_[token.id] != token.content) {
      take(token.content, token.id);
      by_content_.push_back(token.id);
    }
    if (const auto& decoder = description.word_piece_decoder; decoder && !decoder->begin.empty()) {
      bytes_[token.id] = decoded_word_piece(token.content, *decoder, true);
    }
    // Found in its normal form, and given back so.
    const std::string normal = token.normalized ? normalized(token.content, description.normalizers) : token.content;
    const bool same = normal == token.content;
    if (normal.empty()) origin.fail("a token of which its normal form has something", io::in_quotes(token.content));
    if (token.normalized && found_by.emplace(normal, token.id).first->second != token.id)
      origin.fail("every normal form once", io::in_quotes(token.content));
    const bool words = description.word_piece_decoder && description.word_piece_decoder->begin.empty();
    if (!same && (words || description.metaspace_decoder)) {
      origin.fail("a token in its normal form beside the decoders WordPiece and Metaspace",
                  io::in_quotes(token.content));
    }
    if (!same && !description.word_piece_decoder) bytes_[token.id] = decoded(normal, description);
  }
  by_content_ = sorted(by_content_);
  if (contents_.empty()) origin.fail("a vocabulary", "none");
}

void Vocabulary::take_bytes(const Description& description, const io::Origin& origin) {
  for (int i = 0; i < 256; ++i) {
    const auto byte = static_cast<std::uint8_t>(i);
    const std::string name = byte_level_ ? letter_of(byte) : byte_name(byte);
    const auto id = look_up(name, model_by_content_, contents_);
    const bool needed = description.byte_fallback;
    if (needed && !id)
      origin.fail("a token for each byte", "none for " + std::to_string(i) + ", " + io::in_quotes(name));
    byte_ids_[byte] = byte_level_ || description.byte_fallback ? id.value_or(kNoId) : kNoId;
  }
}

void Vocabulary::take_characters() {
  if (byte_level_) return;
  for (const Id id : model_by_content_) {  // UTF-8 has the order of its codes
    const std::string& content = contents_[id];
    if (content.empty()) continue;
    const Character c = first_character(content);
    if (c.valid && c.length == content.size()) characters_.emplace_back(c.code, id);
  }
  for (std::uint32_t code = 0; code < ascii_.size(); ++code) {
    const auto at = std::ranges::lower_bound(characters_, std::pair(code, Id{0}));
    ascii_[code] = at != characters_.end() && at->first == code ? at->second : kNoId;
  }
}

void Vocabulary::take_merges(const Description& description, const io::Origin& origin) {
  struct Line {
    Id left, right;
  };
  std::vector<Line> lines;
  for (const auto& [left, right] : description.merges) {
    const auto left_id = look_up(left, model_by_content_, contents_),
               right_id = look_up(right, model_by_content_, contents_);
    const auto merged = look_up(left + right, model_by_content_, contents_);
    if (!left_id || !right_id || !merged) {
      std::string pair = left;
      pair += " " + right;
      origin.fail("merges whose parts and result are tokens", io::in_quotes(pair));
    }
    if (lines.size() + 1 >= kNoRank) origin.fail("fewer than 2^32 - 1 merges", "more");
    lines.push_back({*left_id, *right_id});
    merged_.push_back(*merged);
  }
  // By right, then by left, each time by counting: those of equal left stay in the order of their right.
  std::vector<std::uint32_t> ranks(lines.size()), next(lines.size());
  std::iota(ranks.begin(), ranks.end(), 0U);
  for (const auto side : {&Line::right, &Line::left}) {
    first_.assign(size() + 1, 0);
    for (const Line& line : lines) ++first_[line.*side + 1];
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    std::vector<std::uint32_t> at = first_;
    for (const std::uint32_t rank : ranks) next[at[lines[rank].*side]++] = rank;
    ranks.swap(next);
  }
  for (const std::uint32_t rank : ranks) {
    const auto [left, right] = lines[rank];
    if (merges_.size() > first_[left] && merges_.back().right == right) {
      origin.fail("every merge once", "a second one of " + io::in_quotes(contents_[merged_[rank]]));
    }
    merges_.push_back({right, rank});
  }
  order_ = description.merge_order;
}

std::optional<Id> Vocabulary::find(std::string_view content) const { return look_up(content, by_content_, contents_); }

std::optional<Id> Vocabulary::find_piece(std::string_view piece) const {
  if (!byte_level_) return look_up(piece, model_by_content_, contents_);
  static const auto& letters = lasting([] {
    std::array<std::string, 256> table;
    for (int byte = 0; byte < 256; ++byte)
      table[static_cast<std::size_t>(byte)] = letter_of(static_cast<std::uint8_t>(byte));
    return table;
  });
  std::string content;
  for (const char byte : piece) content.append(letters[static_cast<std::uint8_t>(byte)]);
  return look_up(content, model_by_content_, contents_);
}

Id Vocabulary::character_id(std::uint32_t code) const {
  if (code < ascii_.size()) return ascii_[code];
  const auto at = std::ranges::lower_bound(characters_, std::pair(code, Id{0}));
  return at != characters_.end() && at->first == code ? at->second : kNoId;
}

void Vocabulary::symbols_of(std::string_view piece, std::vector<Id>& symbols) const {
  symbols.clear();
  bool after_unknown = false;
  const auto push = [&](Id id) {
    const bool unknown = id == kNoId;
    if (unknown && unknown_ != kNoId && !(after_unknown && fuse_unknown_)) symbols.push_back(unknown_);
    if (!unknown) symbols.push_back(id);
    after_unknown = unknown;
  };
  while (!piece.empty()) {
    const Character c = first_character(piece);
    const std::size_t length = c.valid && !byte_level_ ? c.length : 1;
    const Id id = c.valid && !byte_level_ ? character_id(c.code) : kNoId;
    const auto bytes = piece.substr(0, length);
    if (id != kNoId) {
      push(id);
    } else if (const Id first = byte_ids_[static_cast<std::uint8_t>(bytes.front())]; first != kNoId || byte_level_) {
      for (const char byte : bytes) push(byte_ids_[static_cast<std::uint8_t>(byte)]);
    } else {
      push(kNoId);
    }
    piece.remove_prefix(length);
  }
}

std::uint32_t Vocabulary::rank(Id left, Id right) const {
  const auto begin = merges_.begin() + first_[left], end = merges_.begin() + first_[left + 1];
  const auto at = std::lower_bound(begin, end, right, [](const Merge& m, Id id) { return m.right < id; });
  return at != end && at->right == right ? at->rank : kNoRank;
}

}  // namespace attn::text
