#include "text/vocabulary.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "io/bytes.hpp"
#include "core/utf8.hpp"

namespace attn::text {
namespace {

constexpr std::string_view kVersion = "#version";
constexpr io::Origin kMerges{"BPETokenizer", "merges.txt"};

using Entries = std::vector<std::pair<std::string, std::uint64_t>>;

// Follows the parser's events: one object of numbers, and nothing else, however deep the rest would go.
class VocabEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit VocabEvents(const io::Origin& origin) : origin_(origin) {}

  Entries take() { return std::move(entries_); }

  bool start_object(std::size_t) override { return depth_++ == 0 || misplaced("an object"); }
  bool end_object() override { return true; }
  bool key(string_t& key) override {
    key_ = key;
    return true;
  }
  bool number_unsigned(number_unsigned_t id) override {
    if (depth_ == 0) misplaced("a number");
    entries_.emplace_back(std::move(key_), id);
    return true;
  }
  bool number_integer(number_integer_t) override { return misplaced("a negative id"); }
  bool number_float(number_float_t, const string_t&) override { return misplaced("a fraction"); }
  bool string(string_t&) override { return misplaced("a string"); }
  bool start_array(std::size_t) override { return misplaced("an array"); }
  bool end_array() override { return true; }
  bool boolean(bool) override { return misplaced("true or false"); }
  bool null() override { return misplaced("null"); }
  bool binary(binary_t&) override { return misplaced("binary"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    origin_.fail("JSON", "an error at its byte " + std::to_string(position));
  }

 private:
  [[noreturn]] bool misplaced(const std::string& what) const {
    origin_.fail("an object of ids, {\"token\": 0, …}", what + " at " + io::in_quotes(key_));
  }

  const io::Origin& origin_;
  int depth_ = 0;
  std::string key_;
  Entries entries_;
};

// Sorted by token; ids are 0 to n - 1, each once.
Entries parse_vocab(std::string_view json, const io::Origin& origin) {
  if (json.find('\0') != std::string_view::npos) origin.fail("JSON", "a zero byte");  // the parser would stop there
  VocabEvents events(origin);
  nlohmann::json::sax_parse(json, &events);
  Entries entries = events.take();
  std::vector<bool> seen(entries.size());
  for (const auto& [token, id] : entries) {
    if (id >= seen.size() || seen[id]) {
      origin.fail("ids from 0 to " + std::to_string(seen.size() - 1) + ", each once",
                  std::to_string(id) + " for " + io::in_quotes(token));
    }
    seen[id] = true;
  }
  std::sort(entries.begin(), entries.end());
  const auto twice = std::adjacent_find(entries.begin(), entries.end(),
                                        [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != entries.end()) origin.fail("every token once", io::in_quotes(twice->first) + " twice");
  return entries;
}

void append_utf8(std::string& text, std::uint32_t code) {  // below U+0800
  if (code >= 0x80) {
    text.push_back(static_cast<char>(0xc0 | code >> 6));
    code = 0x80 | (code & 0x3f);
  }
  text.push_back(static_cast<char>(code));
}

// The bytes that a token of letters stands for; one with other characters stands for itself.
std::string bytes_of_letters(std::string_view token) {
  static const auto byte_of = [] {
    std::array<int, 512> table;
    table.fill(-1);
    for (int byte = 0; byte < 256; ++byte) table[letter_of(static_cast<std::uint8_t>(byte))] = byte;
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

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::optional<Id> find(const Entries& sorted, std::string_view token) {
  const auto at = std::lower_bound(sorted.begin(), sorted.end(), token,
                                   [](const auto& entry, std::string_view t) { return entry.first < t; });
  if (at == sorted.end() || at->first != token) return {};
  return static_cast<Id>(at->second);
}

std::vector<Vocabulary::Line> parse_merges(std::string_view text, const Entries& entries) {
  std::vector<Vocabulary::Line> lines;
  if (text.starts_with(kVersion)) take_line(text);
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    if (line.empty()) continue;
    const std::size_t blank = line.find(' ');
    if (blank == 0 || blank == std::string_view::npos || blank + 1 == line.size() ||
        line.find(' ', blank + 1) != std::string_view::npos) {
      kMerges.fail("two tokens a line, with one blank between", io::in_quotes(line));
    }
    const std::string_view left = line.substr(0, blank), right = line.substr(blank + 1);
    const auto left_id = find(entries, left), right_id = find(entries, right);
    const auto merged = find(entries, std::string(left).append(right));
    if (!left_id || !right_id || !merged) {
      kMerges.fail("merges whose parts and result are tokens of vocab.json", io::in_quotes(line));
    }
    if (lines.size() + 1 >= kNoRank) kMerges.fail("fewer than 2^32 - 1 merges", "more");
    lines.push_back({*left_id, *right_id, *merged, static_cast<std::uint32_t>(lines.size())});
  }
  return lines;
}

}  // namespace

std::uint32_t letter_of(std::uint8_t byte) {
  const auto printable = [](int b) { return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae; };
  if (printable(byte)) return byte;
  std::uint32_t letter = 0x100;
  for (int b = 0; b < byte; ++b) letter += printable(b) ? 0 : 1;
  return letter;
}

Vocabulary::Vocabulary(std::string_view vocab_json, std::string_view merges_txt) {
  const io::Origin origin{"BPETokenizer", "vocab.json"};
  const Entries entries = parse_vocab(vocab_json, origin);
  if (entries.size() >= kNoRank) origin.fail("fewer than 2^32 - 1 tokens", std::to_string(entries.size()));
  tokens_.resize(entries.size());
  for (const auto& [token, id] : entries) tokens_[id] = bytes_of_letters(token);
  for (int byte = 0; byte < 256; ++byte) {
    std::string letter;
    append_utf8(letter, letter_of(static_cast<std::uint8_t>(byte)));
    const auto id = find(entries, letter);
    if (!id) origin.fail("a token for each byte", "none for " + std::to_string(byte) + ", " + io::in_quotes(letter));
    byte_ids_[static_cast<std::size_t>(byte)] = *id;
  }
  end_of_text_ = find(entries, kEndOfText);
  index(parse_merges(merges_txt, entries));
}

void Vocabulary::index(std::vector<Line> lines) {
  for (const Line& line : lines) merged_.push_back(line.merged);
  std::sort(lines.begin(), lines.end(),
            [](const Line& a, const Line& b) { return std::pair(a.left, a.right) < std::pair(b.left, b.right); });
  first_.assign(tokens_.size() + 1, 0);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Line& line = lines[i];
    if (i > 0 && lines[i - 1].left == line.left && lines[i - 1].right == line.right) {
      kMerges.fail("every merge once", "a second one of " + io::in_quotes(tokens_[line.merged]));
    }
    ++first_[line.left + 1];
    merges_.push_back({line.right, line.rank});
  }
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
}

std::uint32_t Vocabulary::rank(Id left, Id right) const {
  const auto begin = merges_.begin() + first_[left], end = merges_.begin() + first_[left + 1];
  const auto at = std::lower_bound(begin, end, right, [](const Merge& m, Id id) { return m.right < id; });
  return at != end && at->right == right ? at->rank : kNoRank;
}

}  // namespace attn::text
