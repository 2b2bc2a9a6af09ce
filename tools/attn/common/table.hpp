// Text in columns.
#pragma once

#include <string>
#include <vector>

namespace attn::tool {

// The first row may be titles; all rows have as many cells.
using Table = std::vector<std::vector<std::string>>;

// The rows as lines, columns as wide as their widest cell. A column is aligned left where `alignment` has '<' at its
// place, right where it has '>'.
std::vector<std::string> table_lines(const Table& table, const std::string& alignment);

}  // namespace attn::tool
