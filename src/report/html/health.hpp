// What can be wrong with attention weights, looked for.
#pragma once

#include <string>
#include <vector>

#include "report/html/blocks.hpp"

namespace attn::report_page {

struct Check {
  std::string name;  // "each row of weights sums to 1"
  bool holds = true;
  double value = 0;  // what was measured
  double bound = 0;  // what rounding allows there
  std::string told;  // both in words
};

// Rows that sum to 1, NaN and infinities, weight on masked keys, and scores, weights and contexts by float64 from the
// steps before them. The bounds follow from the dtype in which each step was recorded and from the sizes of the terms,
// so that a check which fails means a fault. A check that needs a step which the trace lacks is left out.
std::vector<Check> health(const Blocks& blocks);

}  // namespace attn::report_page
