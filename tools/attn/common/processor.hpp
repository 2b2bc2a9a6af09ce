// Tells what this machine's processor is and can do.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace attn::tool {

struct Processor {
  std::string name;                                    // "" when the system does not tell
  std::vector<std::pair<std::string, bool>> features;  // usable ones are true: the system saves their registers
  unsigned threads = 1;                                // hardware threads that this process may use
};

Processor this_processor();

}  // namespace attn::tool
