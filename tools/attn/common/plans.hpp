// How the kernels computed something, told.
#pragma once

#include <string>
#include <vector>

#include "common/json.hpp"
#include "kernels/explain.hpp"

namespace attn::tool {

// Without a plan nothing was fused: the steps of the reference.
std::string plans_text(const std::vector<kernels::Explanation>& plans);
Json plans_json(const std::vector<kernels::Explanation>& plans);

}  // namespace attn::tool
