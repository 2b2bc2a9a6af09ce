// `attn bench --explain` tells this of a row: its plans and, for numbers of threads that this machine need not have,
// how their tasks share out.
#pragma once

#include <string>
#include <vector>

#include "bench/row.hpp"

namespace attn::tool {

// Each row is computed once, untimed. For each of `threads` it is planned for so many and computed by one, its tasks
// timed one by one, and the time on so many follows. As text, or as a JSON object a row and number of threads, a line
// each.
std::string explained(const std::vector<Row>& rows, const std::vector<int>& threads, bool json);

}  // namespace attn::tool
