// Random problems that every rank draws alike, and takes its rows of: what the ranks compute is put together, and held
// against one process and the oracle. The transport is threads here, and MPI in tests/mpi.
#pragma once

#include "attention/tiles.hpp"
#include "attn/distributed.hpp"

namespace attn::test {

namespace dist = attn::distributed;

struct Case {
  Inputs in;
  Tensor g;
  dist::Layout queries, keys;
};

Case random_case(std::mt19937& rng, int ranks);
// Uneven runs, empty ones among them; even ones; zigzag.
dist::Layout random_layout(std::mt19937& rng, std::int64_t tokens, int ranks);

// This rank's rows, and its options.
struct Own {
  Tensor q, k, v, g;
  dist::Options options;
};
Own own_rows(const Case& c, const dist::Transport& transport);

// The same in every rank.
void check_case(dist::Transport& transport, const Case& c, dist::Scheme scheme);
void check_decode(dist::Transport& transport, std::mt19937& rng);
void check_transport(dist::Transport& transport);

}  // namespace attn::test
