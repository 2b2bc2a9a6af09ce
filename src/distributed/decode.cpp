// New tokens against a cache that is cut among ranks: each computes all queries over its own keys, and one reduction
// merges the results (Shyam et al. 2024, "Tree Attention"): a rank merges its share of the rows, and all get the whole.
#include "attention/fused.hpp"
#include "distributed/over_keys.hpp"

namespace attn::distributed {
namespace {

// Over this rank's keys.
Partial own_part(const Call& call, const Tensor& q, const Tensor& k, const Tensor& v) {
  Partial partial;
  std::int64_t row = 0;
  const Run queries{0, q.size(2)};
  for (const Run& run : call.keys().runs(call.rank())) {
    const Run keys = seen(call.problem, call.options, queries, run);
    const std::int64_t first = row + keys.first - run.first;
    row += run.length();
    if (keys.empty()) continue;
    AttentionOptions options = of_block(call.problem, call.options, queries, 0, keys);
    options.output_dtype = call.wide();
    partial.add(attention_to_merge(q, k.slice(2, first, first + keys.length()),
                                   v.slice(2, first, first + keys.length()), options));
  }
  return partial;
}

}  // namespace

AttentionResult decode(Transport& transport, const Tensor& q, const Tensor& k, const Tensor& v,
                       const Options& options) {
  Call call = agree(transport, q, k, v, options, Kind::decode);
  const Shape shape{q.size(0), q.size(1), q.size(2), v.size(3)}, rows{q.size(0), q.size(1), q.size(2)};
  const AttentionResult part{Tensor::empty(shape, call.wide()), Tensor::empty(rows, DType::f64)};
  own_part(call, q, k, v).store(part.output, part.lse);
  Partial result = merged_over_ranks(transport, part);
  if (call.options.sinks.defined()) result.add_sinks(call.options.sinks, shape);
  AttentionResult out{Tensor::empty(shape, call.output_dtype()), Tensor::empty(rows, call.wide())};
  result.store(out.output, out.lse);
  return out;
}

}  // namespace attn::distributed
