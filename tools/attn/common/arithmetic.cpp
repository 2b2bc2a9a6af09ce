#include "common/arithmetic.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "common/format.hpp"
#include "common/terminal.hpp"

namespace attn::tool {
namespace {

constexpr std::size_t kMostTerms = 4;

}  // namespace

std::string operand_text(double value) {
  const std::string text = number_text(value);
  return text.starts_with('-') ? "(" + text + ")" : text;
}

std::string dot_line(std::string_view prefix, std::span<const double> a, std::span<const double> b,
                     std::optional<double> bias, double total, std::string_view suffix) {
  // By place in the sum where all are written, else the largest first; NaN is larger than any.
  const auto size = [&](std::size_t i) {
    const double product = std::abs(a[i] * b[i]);
    return std::isnan(product) ? std::numeric_limits<double>::infinity() : product;
  };
  const std::string end = (bias ? " + " + operand_text(*bias) : "") + " = " + number_text(total);
  const auto line_of = [&](std::span<const std::size_t> written, std::span<const std::size_t> others) {
    std::vector<std::string> terms;
    double rest = 0;
    for (const std::size_t i : written) terms.push_back(operand_text(a[i]) + "·" + operand_text(b[i]));
    for (const std::size_t i : others) rest += a[i] * b[i];
    if (!others.empty()) terms.push_back(formatted("{} ({} more)", operand_text(rest), others.size()));
    if (terms.empty() && bias) terms.emplace_back("0");
    return std::string(prefix) + (terms.empty() ? "" : " = " + joined(terms, " + ")) + end;
  };
  std::vector<std::size_t> order(a.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::span<const std::size_t> all = order;
  std::string line = a.size() <= kMostTerms ? line_of(all, {}) : "";
  if (line.empty() || width_of(line) > kColumns) {
    std::ranges::stable_sort(order, std::ranges::greater{}, size);
    const auto used =
        static_cast<std::size_t>(std::ranges::count_if(order, [&](std::size_t i) { return size(i) != 0; }));
    for (std::size_t head = std::min(used, kMostTerms);; --head) {
      line = line_of(all.first(head), all.subspan(head, used - head));
      if (width_of(line) <= kColumns || head <= 1) break;
    }
  }
  if (width_of(line) + 2 + width_of(suffix) <= kColumns && !suffix.empty()) line.append("  ").append(suffix);
  return line + "\n";
}

}  // namespace attn::tool
