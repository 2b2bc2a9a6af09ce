#include "distributed/over_keys.hpp"

#include <cmath>

#include "distributed/exchange.hpp"

namespace attn::distributed {
namespace {

// Rows (n, dv + 2) as ranks send them: the output, and the log-sum-exp as two numbers, whose sum has float64's digits.
Tensor packed(const AttentionResult& part) {
  const std::int64_t dv = part.output.size(3), rows = part.lse.numel();
  const DType dtype = part.output.dtype();
  const Tensor all = Tensor::empty({rows, dv + 2}, dtype), high = part.lse.to(dtype).to(DType::f64),
               low = part.lse.clone();
  for (std::int64_t i = 0; i < rows; ++i) {
    const double of_row = high.data<double>()[i];
    low.data<double>()[i] = std::isfinite(of_row) ? low.data<double>()[i] - of_row : 0;
  }
  all.slice(1, 0, dv).copy_from(part.output.contiguous().view({rows, dv}));
  all.select(1, dv).copy_from(high.view({rows})), all.select(1, dv + 1).copy_from(low.view({rows}));
  return all;
}

// As a part of rows of that shape.
AttentionResult unpacked(const Tensor& rows, const Shape& shape) {
  const std::int64_t dv = shape[3];
  const Tensor lse = rows.select(1, dv).to(DType::f64).contiguous(), low = rows.select(1, dv + 1).to(DType::f64);
  for (std::int64_t i = 0; i < lse.numel(); ++i) lse.data<double>()[i] += low.at({i});
  return {rows.slice(1, 0, dv).contiguous().view(shape), lse.view({shape[0], shape[1], shape[2]})};
}

// Merges the parts of all ranks, for a share of the rows.
Tensor merged(const std::vector<Tensor>& parts, std::int64_t dv) {
  Partial partial;
  const Shape shape{1, 1, parts[0].size(0), dv};
  for (const Tensor& part : parts) partial.add(unpacked(part, shape));
  const AttentionResult all{Tensor::empty(shape, parts[0].dtype()), Tensor::empty({1, 1, shape[2]}, DType::f64)};
  partial.store(all.output, all.lse);
  return packed(all);
}

}  // namespace

Partial merged_over_ranks(Transport& transport, const AttentionResult& own) {
  const Tensor part = packed(own);
  const int ranks = transport.size();
  const std::int64_t rows = part.size(0), width = part.size(1);
  const auto share = [&](int r) { return share_of_heads(rows, ranks, r); };
  std::vector<Tensor> to;
  std::vector<Shape> shapes;
  for (int r = 0; r < ranks; ++r) {
    to.push_back(part.slice(0, share(r).first, share(r).last));
    shapes.push_back({share(transport.rank()).count(), width});
  }
  const Tensor shared = merged(exchange(transport, to, shapes), width - 2);
  for (int r = 0; r < ranks; ++r) shapes[static_cast<std::size_t>(r)] = {share(r).count(), width};
  const std::vector<Tensor> all = exchange(transport, std::vector<Tensor>(shapes.size(), shared), shapes);
  const Tensor whole = Tensor::empty(part.shape(), part.dtype());
  for (int r = 0; r < ranks; ++r)
    whole.slice(0, share(r).first, share(r).last).copy_from(all[static_cast<std::size_t>(r)]);
  Partial result;
  result.add(unpacked(whole, own.output.shape()));
  return result;
}

}  // namespace attn::distributed
