// GPT-2's own two files.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/json_object.hpp"
#include "text/readers.hpp"
#include "text/vocabulary.hpp"

namespace attn::text {
namespace {

constexpr std::string_view kVersion = "#version";
constexpr std::string_view kEndOfText = "<|endoftext|>";
constexpr io::Origin kMerges{"BPETokenizer", "merges.txt"};

using Entries = std::vector<std::pair<std::string, std::uint64_t>>;

// Follows the parser's events: one object of numbers, and nothing else, however deep the rest would go.
class VocabEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  VocabEvents(std::string_view json, const io::Origin& origin) : json_(json), origin_(origin) {}

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
    io::fail_json(json_, position, origin_);
  }

 private:
  [[noreturn]] bool misplaced(const std::string& what) const {
    origin_.fail("an object of ids, {\"token\": 0, …}", what + " at " + io::in_quotes(key_));
  }

  std::string_view json_;
  const io::Origin& origin_;
  int depth_ = 0;
  std::string key_;
  Entries entries_;
};

// Ids are 0 to n - 1, each once, and every byte has one.
Entries parse_vocab(std::string_view json, const io::Origin& origin) {
  io::require_plain_json(json, origin);
  VocabEvents events(json, origin);
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
  std::ranges::sort(entries);
  for (int byte = 0; byte < 256; ++byte) {
    const std::string letter = letter_of(static_cast<std::uint8_t>(byte));
    if (!std::ranges::binary_search(entries, letter, {}, &Entries::value_type::first)) {
      origin.fail("a token for each byte", "none for " + std::to_string(byte) + ", " + io::in_quotes(letter));
    }
  }
  return entries;
}

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::vector<std::pair<std::string, std::string>> parse_merges(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> merges;
  if (text.starts_with(kVersion)) take_line(text);
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    if (!line.empty()) merges.push_back(merge_of(line, kMerges));
  }
  return merges;
}

}  // namespace

std::pair<std::string, std::string> merge_of(std::string_view line, const io::Origin& origin) {
  const std::size_t blank = line.find(' ');
  if (blank == 0 || blank == std::string_view::npos || blank + 1 == line.size() ||
      line.find(' ', blank + 1) != std::string_view::npos) {
    origin.fail("merges of two tokens, with one blank between", io::in_quotes(line));
  }
  return {std::string(line.substr(0, blank)), std::string(line.substr(blank + 1))};
}

Description describe_gpt2(std::string_view vocab_json, std::string_view merges_txt) {
  Description d;
  d.vocabulary = parse_vocab(vocab_json, {"BPETokenizer", "vocab.json"});
  d.merges = parse_merges(merges_txt);
  d.byte_level = true;
  d.splitters.push_back(split_at(kGpt2Pattern));
  const auto end = std::ranges::lower_bound(d.vocabulary, kEndOfText, {}, &Entries::value_type::first);
  if (end != d.vocabulary.end() && end->first == kEndOfText) {
    d.end_of_text = static_cast<Id>(end->second);
    d.added.push_back({.content = end->first, .id = *d.end_of_text, .special = true});
  }
  return d;
}

}  // namespace attn::text
