#include "distributed/shards.hpp"

#include <algorithm>
#include <utility>

namespace attn::distributed {
namespace {

std::int64_t row_numbers(const Problem& p) { return p.batch * p.key_heads * (p.depth + p.value_depth); }

// The rows of `run` among this rank's own.
Tensor own_rows(const Call& call, const Tensor& t, const Run& run) {
  std::int64_t at = 0;
  for (const Run& own : call.keys().runs(call.rank())) {
    if (own.first <= run.first && run.last <= own.last)
      return t.slice(2, at + run.first - own.first, at + run.last - own.first);
    at += own.length();
  }
  return t.slice(2, 0, 0);
}

}  // namespace

std::vector<Run> needed(const Call& call, int owner, int user) {
  std::vector<Run> runs;
  for (const Run& keys : call.keys().runs(owner)) {
    Run hull{keys.last, keys.first};
    for (const Run& queries : call.queries().runs(user)) {
      const Run some = seen(call.problem, call.options, queries, keys);
      if (!some.empty()) hull = {std::min(hull.first, some.first), std::max(hull.last, some.last)};
    }
    runs.push_back(hull.empty() ? Run{keys.first, keys.first} : hull);
  }
  return runs;
}

Shard empty_shard(const Call& call, const std::vector<Run>& runs, DType dtype) {
  const Problem& p = call.problem;
  Shard shard{runs, {}, {}, {}};
  std::int64_t rows = 0;
  for (const Run& run : runs) rows += run.length();
  shard.memory = Tensor::empty({rows * row_numbers(p)}, dtype);
  std::int64_t at = 0;
  const auto next = [&](const Run& run, std::int64_t width) {
    const Shape shape{p.batch, p.key_heads, run.length(), width};
    const std::int64_t first = std::exchange(at, at + shape.numel());
    return shard.memory.slice(0, first, at).view(shape);
  };
  for (const Run& run : runs) {
    shard.k.push_back(next(run, p.depth));
    shard.v.push_back(next(run, p.value_depth));
  }
  return shard;
}

void fill(const Call& call, const Shard& shard, const Tensor& k, const Tensor& v) {
  for (std::size_t i = 0; i < shard.runs.size(); ++i) {
    shard.k[i].copy_from(own_rows(call, k, shard.runs[i]));
    shard.v[i].copy_from(own_rows(call, v, shard.runs[i]));
  }
}

void Shards::start(int step) {
  const int ranks = call_.ranks(), own = call_.rank();
  const int source = (own + ranks - step) % ranks, target = (own + step) % ranks;
  next_ = empty_shard(call_, needed(call_, source, own), call_.problem.dtype);
  if (step == 0) return fill(call_, next_, k_, v_);
  sent_ = empty_shard(call_, needed(call_, own, target), call_.problem.dtype);
  fill(call_, sent_, k_, v_);
  if (!next_.empty()) receiving_ = call_.transport.receive(source, room_of(next_.memory), kKeysAndValues);
  if (!sent_.empty()) sending_ = call_.transport.send(target, bytes_of(sent_.memory), kKeysAndValues);
}

Shard Shards::take(int step) {
  receiving_.wait(), sending_.wait();
  Shard ready = std::move(next_);
  if (step + 1 < call_.ranks()) start(step + 1);
  return ready;
}

}  // namespace attn::distributed
