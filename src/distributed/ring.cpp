// Keys and values travel (Liu et al. 2023, "Ring Attention with Blockwise Transformers"); a rank merges the results of
// its queries over each rank's keys.
#include <algorithm>

#include "attention/fused.hpp"
#include "distributed/partial.hpp"
#include "distributed/shards.hpp"

namespace attn::distributed {
namespace {

// A block is computed by some heads at a time, and messages go on between them.
constexpr std::int64_t kPiecesOfHeads = 8;

template <class F>
void for_each_piece_of_heads(const Call& call, F&& f) {
  const std::int64_t heads = call.problem.key_heads, pieces = call.ranks() == 1 ? 1 : std::min(heads, kPiecesOfHeads);
  for (std::int64_t i = 0; i < pieces; ++i) {
    f(share_of_heads(heads, pieces, i));
    call.transport.progress();
  }
}

struct Block {
  Run queries, keys;       // positions
  std::int64_t query_row;  // of this rank's
  std::size_t of_queries;  // which of its runs
  Tensor k, v;
  std::int64_t key_row;  // of the shard's run
};

// f(block) for all of this rank's queries that see keys of the shard.
template <class F>
void for_each_block(const Call& call, const Shard& shard, std::size_t run, F&& f) {
  std::int64_t row = 0;
  const std::vector<Run>& own = call.queries().runs(call.rank());
  for (std::size_t i = 0; i < own.size(); ++i) {
    const Run keys = seen(call.problem, call.options, own[i], shard.runs[run]);
    const std::int64_t first = keys.first - shard.runs[run].first;
    if (!keys.empty()) {
      f(Block{own[i], keys, row, i, shard.k[run].slice(2, first, first + keys.length()),
              shard.v[run].slice(2, first, first + keys.length()), first});
    }
    row += own[i].length();
  }
}

Tensor rows_of(const Tensor& t, const Block& block) {
  return t.slice(2, block.query_row, block.query_row + block.queries.length());
}

AttentionOptions options_of(const Call& call, const Block& block, Heads heads) {
  AttentionOptions options =
      of_block(call.problem, of_heads(call.problem, call.options, heads), block.queries, block.query_row, block.keys);
  options.output_dtype = call.wide();
  return options;
}

void add_block(const Call& call, const Tensor& q, const Block& block, Partial& to) {
  const Tensor rows = rows_of(q, block);
  for_each_piece_of_heads(call, [&](Heads heads) {
    const AttentionResult part = attention_to_merge(query_heads(call.problem, rows, heads), key_heads(block.k, heads),
                                                    key_heads(block.v, heads), options_of(call, block, heads));
    to.add(part, heads.first * call.group(), call.problem.query_heads);
  });
}

// Gradients of this rank's rows, as they add up: float64.
struct Sums {
  Tensor q, k, v, bias, sinks, relative_bias;

  explicit Sums(const Call& call, const Incoming& in) {
    const auto zeros = [](const Tensor& t) { return t.defined() ? Tensor::zeros(t.shape(), DType::f64) : Tensor{}; };
    q = zeros(in.q), k = zeros(in.k), v = zeros(in.v), bias = zeros(call.options.mask.bias);
    sinks = zeros(call.options.sinks), relative_bias = zeros(call.options.relative_bias.table);
  }

  // A block's: its rows and columns where the bias has them.
  void add_bias(const Call& call, const Block& block, Heads heads, const Tensor& part) const {
    Tensor to = mask_heads(call.problem, bias, heads);
    if (to.size(2) != 1) to = rows_of(to, block);
    if (to.size(3) != 1) to = to.slice(3, block.keys.first, block.keys.last);
    add_to(to, part);
  }
};

// Adds to the sums of this rank's queries, and to the gradients of the shard's keys and values.
void add_gradients(const Call& call, const Incoming& in, const Block& block, std::size_t run, const Sums& sums,
                   const Shard& d_shard) {
  const AttentionResult forward{rows_of(in.forward.output, block), rows_of(in.forward.lse, block)};
  for_each_piece_of_heads(call, [&](Heads heads) {
    const auto queries = [&](const Tensor& t) { return query_heads(call.problem, t, heads); };
    const AttentionGradient part = attn::attention_backward(
        queries(rows_of(in.d_output, block)), queries(rows_of(in.q, block)), key_heads(block.k, heads),
        key_heads(block.v, heads), options_of(call, block, heads), {queries(forward.output), queries(forward.lse)});
    const auto keys = [&](const Tensor& t) {
      return key_heads(t, heads).slice(2, block.key_row, block.key_row + block.keys.length());
    };
    add_to(queries(rows_of(sums.q, block)), part.q);
    add_to(keys(d_shard.k[run]), part.k), add_to(keys(d_shard.v[run]), part.v);
    if (sums.bias.defined()) sums.add_bias(call, block, heads, part.bias);
    if (sums.relative_bias.defined()) {
      const std::int64_t first = heads.first * call.group(), last = heads.last * call.group();
      add_to(sums.relative_bias.slice(1, first, last).unsqueeze(0).unsqueeze(0), part.relative_bias);
    }
  });
}

void add_rows(const Call& call, const Shard& shard, const Sums& sums) {
  for (std::size_t i = 0; i < shard.runs.size(); ++i) {
    std::int64_t at = 0;
    for (const Run& own : call.keys().runs(call.rank())) {
      const Run& run = shard.runs[i];
      if (!run.empty() && own.first <= run.first && run.last <= own.last) {
        const auto rows = [&](const Tensor& t) {
          return t.slice(2, at + run.first - own.first, at + run.last - own.first);
        };
        add_to(rows(sums.k), shard.k[i]), add_to(rows(sums.v), shard.v[i]);
      }
      at += own.length();
    }
  }
}

// Gradients of keys and values on their way back to the rank that has these rows: those of a step are sent while the
// next one's are computed, and added in the order of the steps.
class Returns {
 public:
  Returns(const Call& call, const Sums& sums) : call_(call), sums_(sums) {}

  void add(int step, const Shard& d_shard) {
    if (step == 0) return add_rows(call_, d_shard, sums_);
    finish();
    const int ranks = call_.ranks(), own = call_.rank();
    const int owner = (own + ranks - step) % ranks, user = (own + step) % ranks;
    // Rounded once, on the way.
    sent_ = empty_shard(call_, d_shard.runs, call_.wide());
    sent_.memory.copy_from(d_shard.memory);
    incoming_ = empty_shard(call_, needed(call_, own, user), call_.wide());
    if (!incoming_.empty()) receiving_ = call_.transport.receive(user, room_of(incoming_.memory), kGradients);
    if (!sent_.empty()) sending_ = call_.transport.send(owner, bytes_of(sent_.memory), kGradients);
  }

  void finish() {
    receiving_.wait(), sending_.wait();
    if (incoming_.memory.defined() && !incoming_.empty()) add_rows(call_, incoming_, sums_);
    incoming_ = {};
  }

 private:
  const Call& call_;
  const Sums& sums_;
  Shard sent_, incoming_;
  Request sending_, receiving_;
};

// It depends on the rows' outputs alone, so keys are not looked at.
Tensor sinks_gradient(const Call& call, const Incoming& in) {
  AttentionOptions options = call.options;
  options.mask = {}, options.dropout = 0, options.dropout_key = {}, options.dropout_keep = {};
  options.alibi_slopes = {}, options.relative_bias = {}, options.score_function = {}, options.output_dtype = {};
  return attn::attention_backward(in.d_output, in.q, in.k.slice(2, 0, 0), in.v.slice(2, 0, 0), options, in.forward)
      .sinks;
}

}  // namespace

AttentionResult ring_forward(const Call& call, const Tensor& q, const Tensor& k, const Tensor& v) {
  const std::vector<Run>& own = call.queries().runs(call.rank());
  std::vector<Partial> partial(own.size());
  Shards shards(call, k, v);
  for (int step = 0; step < call.ranks(); ++step) {
    const Shard shard = shards.take(step);
    for (std::size_t run = 0; run < shard.runs.size(); ++run) {
      for_each_block(call, shard, run,
                     [&](const Block& block) { add_block(call, q, block, partial[block.of_queries]); });
    }
  }
  AttentionResult result{Tensor::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, call.output_dtype()),
                         Tensor::empty({q.size(0), q.size(1), q.size(2)}, call.wide())};
  std::int64_t row = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const Tensor output = result.output.slice(2, row, row + own[i].length());
    if (call.options.sinks.defined()) partial[i].add_sinks(call.options.sinks, output.shape());
    partial[i].store(output, result.lse.slice(2, row, row + own[i].length()));
    row += own[i].length();
  }
  return result;
}

AttentionGradient ring_backward(const Call& call, const Incoming& in) {
  Sums sums(call, in);
  Shards shards(call, in.k, in.v);
  Returns returns(call, sums);
  for (int step = 0; step < call.ranks(); ++step) {
    const Shard shard = shards.take(step);
    const Shard d_shard = empty_shard(call, shard.runs, DType::f64);
    if (!d_shard.empty()) d_shard.memory.fill(0);
    for (std::size_t run = 0; run < shard.runs.size(); ++run) {
      for_each_block(call, shard, run, [&](const Block& block) { add_gradients(call, in, block, run, sums, d_shard); });
    }
    returns.add(step, d_shard);
  }
  returns.finish();
  if (sums.sinks.defined()) sums.sinks = sinks_gradient(call, in);
  const DType dtype = call.output_dtype();
  return {sums.q.to(dtype), sums.k.to(dtype), sums.v.to(dtype), sums.bias, sums.sinks, sums.relative_bias};
}

}  // namespace attn::distributed
