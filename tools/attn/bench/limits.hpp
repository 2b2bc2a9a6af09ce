// The machine's own limits, as work to be timed: what no kernel can pass.
#pragma once

#include <vector>

#include "bench/row.hpp"
#include "bench/work.hpp"

namespace attn::tool {

struct Limit {
  Row row;  // op "limit"
  Work work;
};

// Multiply-adds of the instruction set in use, in float32 and, where it has them, in bf16; reads from memory. Each
// keeps all threads busy.
std::vector<Limit> machine_limits();

}  // namespace attn::tool
