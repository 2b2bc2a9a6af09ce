// A test's body on several numbers of ranks that are threads.
#pragma once

#include "attn/distributed.hpp"
#include "core/testing.hpp"
#include "core/threads.hpp"

namespace attn::test {

inline constexpr int kRanks[] = {1, 2, 3, 4, 8};

// body(rng, transport) in every rank, with numbers of its own that begin alike.
template <class Body>
void on_ranks(unsigned seeds, Body&& body) {
  const Threads one(1);  // of a rank
  for_seeds(seeds, [&](std::mt19937& rng) {
    const unsigned seed = static_cast<unsigned>(rng());
    for (const int ranks : kRanks) {
      distributed::run_threads(ranks, [&](distributed::Transport& transport) {
        const Threads own(1);
        std::mt19937 again(seed);
        body(again, transport);
      });
    }
  });
}

}  // namespace attn::test
