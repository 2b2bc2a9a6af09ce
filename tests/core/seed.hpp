// The seed of a test whose inputs are drawn anew in each run.
#pragma once

#include <cstdlib>
#include <random>
#include <string>

namespace attn::test {

// ATTN_TEST_SEED where it is set, as CI sets it, so that a run there differs from another by the tree alone; else any.
inline unsigned drawn_seed() {
  const char* given = std::getenv("ATTN_TEST_SEED");
  return given ? static_cast<unsigned>(std::stoul(given)) : std::random_device()();
}

}  // namespace attn::test
