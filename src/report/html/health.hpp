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
  std::string told;  // the measure in words
};

// Rows that sum to 1, NaN and infinities, weight on masked keys, difference from float64. A check that needs a step
// which the trace lacks is left out.
std::vector<Check> health(const Blocks& blocks, const ReportOptions& options);

// The scores' factor, by the recorded steps; 1 where they do not tell.
double scale_of(const Block& block);

}  // namespace attn::report_page
