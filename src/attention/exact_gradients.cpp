#include "attention/exact_gradients.hpp"

#include "attention/composed.hpp"
#include "attention/relative_bias.hpp"
#include "attention/row.hpp"
#include "attn/reference.hpp"

namespace attn {

ScoreGradients::ScoreGradients(const Sizes& p, const AttentionOptions& options, const AttentionGradient& grad)
    : relative_(options.relative_bias), table_(grad.relative_bias) {
  if (grad.bias.defined()) cells_ = grad.bias.expand(p.scores_shape());
}

void ScoreGradients::add(const RowPlace& row, std::int64_t j, double d_score) const {
  const Piece& piece = row.part->piece;
  if (cells_.defined()) {
    const std::int64_t at[] = {piece.batch + row.b, row.h, piece.query + row.i, piece.key + j};
    std::int64_t place = 0;
    for (std::size_t dim = 0; dim < 4; ++dim) place += at[dim] * cells_.stride(static_cast<std::int64_t>(dim));
    cells_.data<float>()[place] += static_cast<float>(d_score);
  }
  if (!table_.defined()) return;
  const std::int64_t bucket =
      relative_bucket(j - piece.centre(row.i), table_.size(0), relative_.bidirectional, relative_.max_distance);
  table_.data<double>()[bucket * table_.size(1) + row.h] += d_score;
}

namespace {

void add_to(const Tensor& sum, const Tensor& gradient) {
  sum.copy_from(reference::add(sum.to(DType::f64), gradient.view(sum.shape())));
}

}  // namespace

void add_exact_gradients(std::span<const RowPlace> rows, const Call& call, const Incoming& in, const Sizes& p,
                         const AttentionOptions& options, const AttentionGradient& grad) {
  if (rows.empty()) return;
  const Piece& piece = rows.front().part->piece;
  const std::int64_t b = piece.batch + rows.front().b, head = rows.front().h / (p.hq / p.hkv);
  const auto of_head = [&](const Tensor& t) { return t.slice(0, b, b + 1).slice(1, head, head + 1); };
  const Tensor k = of_head(call.k).to(DType::f64), v = of_head(call.v).to(DType::f64);
  const Tensor dk = Tensor::zeros(k.shape(), DType::f64), dv = Tensor::zeros(v.shape(), DType::f64);
  const ScoreGradients scores(p, options, grad);
  for (const RowPlace& row : rows) {
    const std::int64_t i = piece.query + row.i;
    const auto line = [&](const Tensor& t) {
      return t.slice(0, b, b + 1).slice(1, row.h, row.h + 1).slice(2, i, i + 1);
    };
    AttentionOptions own = row_options(p, options, piece, b, row.h, i);
    own.output_dtype.reset();
    if (own.mask.bias.defined()) own.mask.bias = own.mask.bias.to(DType::f64);
    const Tensor q = line(call.q).to(DType::f64);
    const AttentionResult forward{line(in.output), line(in.lse), {}};
    const AttentionGradient exact =
        composed_attention_backward(line(in.d_output), q, k, v, validate(q, k, v, own), own, &forward);
    add_to(grad.q.select(0, b).select(0, row.h).select(0, i), exact.q);
    dk.copy_from(reference::add(dk, exact.k)), dv.copy_from(reference::add(dv, exact.v));
    const auto [first, last] = piece.seen(row.i);
    for (std::int64_t j = first; own.mask.bias.defined() && j < last; ++j)
      scores.add(row, j, exact.bias.data<double>()[piece.key + j]);
  }
  add_to(grad.k.select(0, b).select(0, head), dk);
  add_to(grad.v.select(0, b).select(0, head), dv);
}

}  // namespace attn
