#include "common/table.hpp"

#include <algorithm>

#include "common/terminal.hpp"

namespace attn::tool {

std::vector<std::string> table_lines(const Table& table, const std::string& alignment) {
  std::vector<std::size_t> widths(alignment.size());
  for (const auto& row : table) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  }
  std::vector<std::string> lines;
  for (const auto& row : table) {
    std::string& line = lines.emplace_back();
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c != 0) line.append("  ");
      if (alignment[c] == '>') line.append(widths[c] - width_of(row[c]), ' ');
      line.append(row[c]);
      if (alignment[c] == '<' && c + 1 < row.size()) line.append(widths[c] - width_of(row[c]), ' ');
    }
  }
  return lines;
}

}  // namespace attn::tool
