#include "common/arithmetic.hpp"

#include <algorithm>
#include <vector>

#include "common/terminal.hpp"

namespace attn::tool {
namespace {

constexpr std::size_t kMostTerms = 4;

// The first `head` and the last `tail` terms.
std::string sum(const std::vector<std::string>& terms, std::size_t head, std::size_t tail) {
  std::string text;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (i != 0) text.append(" + ");
    if (i == head && head + tail < terms.size()) {
      text.append("… + ");
      i = terms.size() - tail;
    }
    text.append(terms[i]);
  }
  return text;
}

}  // namespace

std::string operand_text(double value) {
  const std::string text = number_text(value);
  return text.starts_with('-') ? "(" + text + ")" : text;
}

std::string dot_line(std::string_view prefix, std::span<const double> a, std::span<const double> b,
                     std::optional<double> bias, double total, std::string_view suffix) {
  std::vector<std::string> terms;
  for (std::size_t i = 0; i < a.size(); ++i) terms.push_back(operand_text(a[i]) + "·" + operand_text(b[i]));
  const std::string end = (bias ? " + " + operand_text(*bias) : "") + " = " + number_text(total);
  std::string line;
  for (std::size_t head = std::min(terms.size(), kMostTerms); head > 0; --head) {
    const bool all = head == terms.size();
    line = std::string(prefix) + " = " + sum(terms, all ? head : std::min<std::size_t>(head, 3), all ? 0 : 1) + end;
    if (width_of(line) <= kColumns) break;
  }
  if (width_of(line) + 2 + width_of(suffix) <= kColumns && !suffix.empty()) line.append("  ").append(suffix);
  return line + "\n";
}

}  // namespace attn::tool
