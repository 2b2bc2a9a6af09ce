// How the ranks of mpirun share a training, as flags tell it.
#pragma once

#include <string>

#include "attn/train.hpp"

namespace attn::tool {

// Ranks by --ranks, --scheme, and --shard with --keep-weights. Throws Error (argument) for shares that are not those of
// these ranks.
TrainRanks train_ranks(distributed::Transport* transport, const std::string& shares, const std::string& scheme,
                       Sharding sharding);

std::string in_words(const TrainRanks& ranks);  // "8 ranks, data=4,sequence=2"

}  // namespace attn::tool
