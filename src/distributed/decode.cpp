// New tokens against a cache that is cut among ranks: each computes all queries over its own keys, and one reduction
// merges the results (Shyam et al. 2024, "Tree Attention"): a rank merges its share of the rows, and all get the whole.
#include "distributed/exchange.hpp"
#include "distributed/partial.hpp"

namespace attn::distributed {
namespace {

// Over this rank's keys: (rows, dv), the log-sum-exp as one number more.
Tensor own_part(const Call& call, const Tensor& q, const Tensor& k, const Tensor& v) {
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
    partial.add(attn::attention(q, k.slice(2, first, first + keys.length()), v.slice(2, first, first + keys.length()),
                                options));
  }
  const Tensor all = Tensor::empty({q.size(0), q.size(1), q.size(2), v.size(3) + 1}, call.wide());
  partial.store(all.slice(3, 0, v.size(3)), all.select(3, v.size(3)));
  return all.view({q.size(0) * q.size(1) * q.size(2), v.size(3) + 1});
}

// Of a share of the rows: the parts of all ranks, merged.
Tensor merged(const std::vector<Tensor>& parts, std::int64_t dv) {
  Partial partial;
  for (const Tensor& part : parts)
    partial.add({part.slice(1, 0, dv).contiguous(), part.select(1, dv).contiguous(), {}});
  const Tensor rows = Tensor::empty(parts[0].shape(), parts[0].dtype());
  partial.store(rows.slice(1, 0, dv), rows.select(1, dv));
  return rows;
}

}  // namespace

AttentionResult decode(Transport& transport, const Tensor& q, const Tensor& k, const Tensor& v,
                       const Options& options) {
  Call call = agree(transport, q, k, v, options, Kind::decode);
  const Tensor part = own_part(call, q, k, v);
  const std::int64_t rows = part.size(0), width = part.size(1), dv = width - 1;
  const auto share = [&](int r) { return share_of_heads(rows, call.ranks(), r); };
  std::vector<Tensor> to;
  std::vector<Shape> shapes;
  for (int r = 0; r < call.ranks(); ++r) {
    to.push_back(part.slice(0, share(r).first, share(r).last));
    shapes.push_back({share(call.rank()).count(), width});
  }
  const Tensor own = merged(exchange(transport, to, shapes), dv);
  for (int r = 0; r < call.ranks(); ++r) shapes[static_cast<std::size_t>(r)] = {share(r).count(), width};
  const std::vector<Tensor> all = exchange(transport, std::vector<Tensor>(shapes.size(), own), shapes);
  const Tensor whole = Tensor::empty(part.shape(), part.dtype());
  for (int r = 0; r < call.ranks(); ++r)
    whole.slice(0, share(r).first, share(r).last).copy_from(all[static_cast<std::size_t>(r)]);
  Partial result;
  result.add({whole.slice(1, 0, dv).contiguous().view({q.size(0), q.size(1), q.size(2), dv}),
              whole.select(1, dv).contiguous().view({q.size(0), q.size(1), q.size(2)}),
              {}});
  if (call.options.sinks.defined()) result.add_sinks(call.options.sinks, {q.size(0), q.size(1), q.size(2), dv});
  AttentionResult out{Tensor::empty({q.size(0), q.size(1), q.size(2), dv}, call.output_dtype()),
                      Tensor::empty({q.size(0), q.size(1), q.size(2)}, call.wide()),
                      {}};
  result.store(out.output, out.lse);
  return out;
}

}  // namespace attn::distributed
