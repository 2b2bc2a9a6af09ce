// The Unicode Standard, section 3.11: characters are taken apart, marks are sorted, and what belongs together is
// joined.
#include "text/nfc.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/lasting.hpp"
#include "core/utf8.hpp"
#include "text/classes.hpp"
#include "text/nfc_data.hpp"

namespace attn::text {
namespace {

// Section 3.12: a syllable of Hangul is a leading consonant, a vowel and perhaps a trailing consonant.
constexpr std::uint32_t kSyllables = 0xac00, kLeads = 0x1100, kVowels = 0x1161, kTrails = 0x11a7;
constexpr std::uint32_t kLeadCount = 19, kVowelCount = 21, kTrailCount = 28;

constexpr std::uint32_t kFirstDecomposed = 0xc0;  // nothing below is taken apart, or is a mark
constexpr std::uint32_t kNoCharacter = 0x110000;  // + the byte that is no UTF-8

struct Letter {
  std::uint32_t code;
  std::uint8_t mark;  // the combining class; 0 for what no mark is
};

std::uint8_t combining_class(std::uint32_t code) {
  static const auto& starts = lasting([] { return starts_of_runs(combining_run_letters()); });
  return static_cast<std::uint8_t>(value_in_runs(starts, code));
}

struct Decomposition {
  std::uint32_t code, first, second;  // second is 0 where one character stands for another
  bool joined;                        // whether NFC makes `code` of the two
};

// In the order of their codes.
const std::vector<Decomposition>& decompositions() {
  static const auto& all = lasting([] {
    std::vector<Decomposition> found;
    std::uint32_t code = 0;
    const auto numbers = numbers_of(decomposition_letters());
    const std::size_t count = numbers.size() / 3;
    for (std::size_t i = 0; i < count; ++i) {
      code += numbers[i] / 2;
      found.push_back({code, numbers[count + i], numbers[2 * count + i], numbers[i] % 2 == 1});
    }
    return found;
  });
  return all;
}

void decompose(std::uint32_t code, std::vector<Letter>& letters) {
  if (code < kFirstDecomposed || code >= kNoCharacter) return letters.push_back({code, 0});
  if (code - kSyllables < kLeadCount * kVowelCount * kTrailCount) {
    const std::uint32_t index = code - kSyllables, trail = index % kTrailCount;
    letters.push_back({kLeads + index / kTrailCount / kVowelCount, 0});
    letters.push_back({kVowels + index / kTrailCount % kVowelCount, 0});
    if (trail > 0) letters.push_back({kTrails + trail, 0});
    return;
  }
  const auto& all = decompositions();
  const auto at = std::ranges::lower_bound(all, code, {}, &Decomposition::code);
  if (at == all.end() || at->code != code) return letters.push_back({code, combining_class(code)});
  decompose(at->first, letters);
  if (at->second != 0) decompose(at->second, letters);
}

// Sorts each run of marks by class, and leaves marks of one class as they came.
void sort_marks(std::vector<Letter>& letters) {
  for (auto begin = letters.begin(); begin != letters.end();) {
    const auto end = std::find_if(begin, letters.end(), [](const Letter& l) { return l.mark == 0; });
    std::stable_sort(begin, end, [](const Letter& a, const Letter& b) { return a.mark < b.mark; });
    begin = end == letters.end() ? end : end + 1;
  }
}

// The character of two, or 0.
std::uint32_t joined(std::uint32_t first, std::uint32_t second) {
  if (first - kLeads < kLeadCount && second - kVowels < kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + second - kVowels) * kTrailCount;
  }
  const bool open =
      first - kSyllables < kLeadCount * kVowelCount * kTrailCount && (first - kSyllables) % kTrailCount == 0;
  if (open && second > kTrails && second < kTrails + kTrailCount) return first + second - kTrails;
  static const auto& pairs = lasting([] {
    std::vector<Decomposition> found;
    std::ranges::copy_if(decompositions(), std::back_inserter(found), &Decomposition::joined);
    std::ranges::sort(found, {}, [](const auto& d) { return std::pair(d.first, d.second); });
    return found;
  });
  const auto at = std::ranges::lower_bound(pairs, std::pair(first, second), {},
                                           [](const auto& d) { return std::pair(d.first, d.second); });
  return at != pairs.end() && at->first == first && at->second == second ? at->code : 0;
}

// A letter joins the last one that is no mark, unless a letter between them has its class or a higher one.
void compose(std::vector<Letter>& letters) {
  std::size_t size = 0, starter = letters.size();
  for (const Letter letter : letters) {
    const bool adjacent = starter + 1 == size;
    const bool free = starter < size && (adjacent || letters[size - 1].mark < letter.mark);
    const std::uint32_t whole = free ? joined(letters[starter].code, letter.code) : 0;
    if (whole != 0) {
      letters[starter].code = whole;
      continue;
    }
    if (letter.mark == 0) starter = size;
    letters[size++] = letter;
  }
  letters.resize(size);
}

std::string normal_form(std::string_view text, bool composed) {
  if (std::ranges::all_of(text, [](char c) { return static_cast<std::uint8_t>(c) < 0x80; })) return std::string(text);
  std::vector<Letter> letters;
  letters.reserve(text.size());
  while (!text.empty()) {
    const Character c = first_character(text);
    const std::size_t length = c.valid ? c.length : 1;
    decompose(c.valid ? c.code : kNoCharacter + static_cast<std::uint8_t>(text.front()), letters);
    text.remove_prefix(length);
  }
  sort_marks(letters);
  if (composed) compose(letters);
  std::string result;
  for (const Letter& letter : letters) {
    if (letter.code < kNoCharacter) append_utf8(result, letter.code);
    if (letter.code >= kNoCharacter) result.push_back(static_cast<char>(letter.code - kNoCharacter));
  }
  return result;
}

}  // namespace

std::string nfc(std::string_view text) { return normal_form(text, true); }
std::string nfd(std::string_view text) { return normal_form(text, false); }

}  // namespace attn::text
