// Keys and values on their way. In step s every rank sends to the rank s further on those of its rows which that one's
// queries see, and receives from the rank s before it, while it computes what came in step s - 1. Nothing is sent that
// no query sees.
#pragma once

#include "distributed/exchange.hpp"

namespace attn::distributed {

// Some runs of one rank's keys and values, or of their gradients.
struct Shard {
  std::vector<Run> runs;  // positions; empty ones have no rows
  std::vector<Tensor> k, v;
  Tensor memory;  // all of them, a run after the other

  bool empty() const { return memory.numel() == 0; }
};

// Returns the runs of rank `owner`'s keys that the queries of rank `user` see.
std::vector<Run> needed(const Call& call, int owner, int user);
Shard empty_shard(const Call& call, const std::vector<Run>& runs, DType dtype);
// From this rank's own rows.
void fill(const Call& call, const Shard& shard, const Tensor& k, const Tensor& v);

enum Tag : int { kKeysAndValues = 1, kGradients = 2 };

class Shards {
 public:
  Shards(const Call& call, const Tensor& k, const Tensor& v) : call_(call), k_(k), v_(v) { start(0); }

  // The keys and values of the rank `step` before this one, in the order of the steps.
  Shard take(int step);

 private:
  void start(int step);

  const Call& call_;
  const Tensor k_, v_;
  Shard next_, sent_;
  Request sending_, receiving_;
};

}  // namespace attn::distributed
