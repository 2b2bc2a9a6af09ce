// New tokens against a cache that is cut among ranks: each computes all queries over its own keys, and one reduction
// merges the results (Shyam et al. 2024, "Tree Attention"): a rank merges its share of the rows, and all get the whole.
#include <cmath>

#include "attention/fused.hpp"
#include "distributed/exchange.hpp"
#include "distributed/partial.hpp"

namespace attn::distributed {
namespace {

// Rows (n, dv + 2) as ranks send them: the output, and the log-sum-exp as two numbers, whose sum has float64's digits.
Tensor packed(const Partial& partial, const Shape& shape, DType dtype) {
  const std::int64_t rows = shape[0] * shape[1] * shape[2], dv = shape[3];
  const Tensor output = Tensor::empty(shape, dtype), lse = Tensor::empty({shape[0], shape[1], shape[2]}, DType::f64);
  partial.store(output, lse);
  const Tensor all = Tensor::empty({rows, dv + 2}, dtype), high = lse.to(dtype).to(DType::f64), low = lse.clone();
  for (std::int64_t i = 0; i < rows; ++i) {
    const double of_row = high.data<double>()[i];
    low.data<double>()[i] = std::isfinite(of_row) ? low.data<double>()[i] - of_row : 0;
  }
  all.slice(1, 0, dv).copy_from(output.view({rows, dv}));
  all.select(1, dv).copy_from(high.view({rows})), all.select(1, dv + 1).copy_from(low.view({rows}));
  return all;
}

// As a part of rows of that shape.
AttentionResult unpacked(const Tensor& rows, const Shape& shape) {
  const std::int64_t dv = shape[3];
  const Tensor lse = rows.select(1, dv).to(DType::f64).contiguous(), low = rows.select(1, dv + 1).to(DType::f64);
  for (std::int64_t i = 0; i < lse.numel(); ++i) lse.data<double>()[i] += low.at({i});
  return {rows.slice(1, 0, dv).contiguous().view(shape), lse.view({shape[0], shape[1], shape[2]}), {}};
}

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

// Of a share of the rows: the parts of all ranks.
Tensor merged(const std::vector<Tensor>& parts, std::int64_t dv) {
  Partial partial;
  const Shape shape{1, 1, parts[0].size(0), dv};
  for (const Tensor& part : parts) partial.add(unpacked(part, shape));
  return packed(partial, shape, parts[0].dtype());
}

}  // namespace

AttentionResult decode(Transport& transport, const Tensor& q, const Tensor& k, const Tensor& v,
                       const Options& options) {
  Call call = agree(transport, q, k, v, options, Kind::decode);
  const Shape shape{q.size(0), q.size(1), q.size(2), v.size(3)};
  const Tensor part = packed(own_part(call, q, k, v), shape, call.wide());
  const std::int64_t rows = part.size(0), width = part.size(1);
  const auto share = [&](int r) { return share_of_heads(rows, call.ranks(), r); };
  std::vector<Tensor> to;
  std::vector<Shape> shapes;
  for (int r = 0; r < call.ranks(); ++r) {
    to.push_back(part.slice(0, share(r).first, share(r).last));
    shapes.push_back({share(call.rank()).count(), width});
  }
  const Tensor own = merged(exchange(transport, to, shapes), v.size(3));
  for (int r = 0; r < call.ranks(); ++r) shapes[static_cast<std::size_t>(r)] = {share(r).count(), width};
  const std::vector<Tensor> all = exchange(transport, std::vector<Tensor>(shapes.size(), own), shapes);
  const Tensor whole = Tensor::empty(part.shape(), part.dtype());
  for (int r = 0; r < call.ranks(); ++r)
    whole.slice(0, share(r).first, share(r).last).copy_from(all[static_cast<std::size_t>(r)]);
  Partial result;
  result.add(unpacked(whole, shape));
  if (call.options.sinks.defined()) result.add_sinks(call.options.sinks, shape);
  AttentionResult out{
      Tensor::empty(shape, call.output_dtype()), Tensor::empty({shape[0], shape[1], shape[2]}, call.wide()), {}};
  result.store(out.output, out.lse);
  return out;
}

}  // namespace attn::distributed
