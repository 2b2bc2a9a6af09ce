// How long a run will take, told before its first step.
#pragma once

#include <string>

#include "train/training.hpp"

namespace attn::tool {

// One sentence or several: the rate that a trial step had, the time that the rest of the run will take, and where that
// is long, smaller sizes. `steps` are those left, `minutes` the limit of the run, or 0. `settable`: whether the sizes
// may still be chosen.
std::string estimate_text(Training& training, std::int64_t steps, double minutes, bool settable);

}  // namespace attn::tool
