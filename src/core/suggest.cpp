#include "core/suggest.hpp"

#include <algorithm>
#include <cctype>

namespace attn {
namespace {

constexpr std::size_t kLongest = 64;  // no name is longer, and the distance of a long word would take long

std::string plain(std::string_view word) {
  std::string text(word.substr(0, word.find('=')));
  for (char& c : text) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Letters to change, add, leave out, or swap with their neighbour (Damerau 1964).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& names) {
  const std::string mine = plain(word);
  if (mine.size() < 2 || mine.size() > kLongest) return {};
  const std::string bare = mine.substr(std::min(mine.find_first_not_of('-'), mine.size()));
  const std::string* best = nullptr;
  std::size_t least = std::max<std::size_t>(1, bare.size() / 3) + 1;
  for (const std::string& name : names) {
    const std::string other = plain(name);
    const bool begins = bare.size() >= 2 && other.starts_with(mine);
    const std::size_t far = begins ? 1 : distance(mine, other);
    if (far < least) least = far, best = &name;
  }
  return best == nullptr ? "" : "did you mean " + *best + "?";
}

}  // namespace attn
