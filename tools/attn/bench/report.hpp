// Tells what was measured, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "bench/measure.hpp"

namespace attn::tool {

// Tables of 80 columns: the limits, then one table for each op and number of threads.
std::string report_text(const std::vector<Measurement>& all, int repeats);
// One JSON object a line: the limits, then the rows.
std::string report_json(const std::vector<Measurement>& all, int repeats);

}  // namespace attn::tool
