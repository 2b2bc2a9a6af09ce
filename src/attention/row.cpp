#include "attention/row.hpp"

#include <cstdlib>

#include "attention/blocks.hpp"
#include "attention/composed.hpp"
#include "attention/relative_bias.hpp"
#include "attention/score_tiles.hpp"
#include "random/philox.hpp"

namespace attn {
namespace {

struct Place {
  std::int64_t b, h, i;
};

// The row's part of a tensor (b, h, tq, …), and of one that broadcasts to the scores.
Tensor cell(const Tensor& t, const Place& at) {
  return t.slice(0, at.b, at.b + 1).slice(1, at.h, at.h + 1).slice(2, at.i, at.i + 1);
}

Tensor cells(const Tensor& t, const Sizes& p, const Place& at) { return cell(t.expand(p.scores_shape()), at); }

// Every part of the mask that says yes or no, in one (1, 1, 1, tk).
Tensor keep_row(const Sizes& p, const Mask& mask, const Piece& piece, const Place& at) {
  Tensor keep = Tensor::zeros({1, 1, 1, p.tk}, DType::boolean);
  const auto [first, last] = piece.seen(at.i - piece.query);
  const Tensor seen = keep.slice(3, piece.key + first, piece.key + last);
  seen.fill(1);
  if (mask.keep.defined()) seen.copy_from(cells(mask.keep, p, at).slice(3, piece.key + first, piece.key + last));
  if (!mask.block_keep.defined()) return keep;
  const Tensor blocks = block_row(p, mask, at.b, at.h, at.i);
  for (std::int64_t j = 0; j < p.tk; ++j) keep.data<bool>()[j] = keep.data<bool>()[j] && blocks.data<bool>()[j];
  return keep;
}

// Every part that is added to the scores.
Tensor bias_row(const Sizes& p, const AttentionOptions& options, const Piece& piece, const Place& at) {
  const Tensor &bias = options.mask.bias, &slopes = options.alibi_slopes;
  const RelativeBias& relative = options.relative_bias;
  if (!slopes.defined() && !relative.table.defined()) return bias.defined() ? cells(bias, p, at) : Tensor{};
  Tensor sum = bias.defined() ? cells(bias, p, at).to(DType::f64).clone() : Tensor::zeros({1, 1, 1, p.tk}, DType::f64);
  const double slope = slopes.defined() ? slopes.at({at.h}) : 0;
  const std::int64_t centre = piece.key + piece.centre(at.i - piece.query);
  for (std::int64_t j = 0; j < p.tk; ++j) {
    sum.data<double>()[j] -= slope * static_cast<double>(std::abs(centre - j));
    if (relative.table.defined()) sum.data<double>()[j] += relative_bias_at(relative, at.h, j - centre);
  }
  return sum;
}

Tensor dropout_row(const Sizes& p, const AttentionOptions& options, const Piece& piece, const Place& at) {
  if (!options.dropout_key) return cells(options.dropout_keep, p, at);
  Tensor keep = Tensor::empty({1, 1, 1, p.tk}, DType::boolean);
  const auto word = [](std::int64_t n) { return static_cast<std::uint32_t>(n); };
  for (std::int64_t j = 0; j < p.tk; ++j) {
    const std::int64_t key = piece.key_offset + j, query = piece.query_offset + at.i;
    const auto words =
        philox({word(key / 4), word(query), word(options.heads.first + at.h), word(at.b)}, *options.dropout_key);
    keep.data<bool>()[j] = words[static_cast<std::size_t>(key % 4)] >= philox_threshold(options.dropout);
  }
  return keep;
}

}  // namespace

AttentionOptions row_options(const Sizes& p, const AttentionOptions& of, const Piece& piece, std::int64_t b,
                             std::int64_t h, std::int64_t i) {
  const Place at{b, h, i};
  AttentionOptions options;
  options.scale = p.scale;
  options.softcap = of.softcap;
  options.output_dtype = of.output_dtype;
  if (of.score_function) {
    options.score_function =
        at_place(of.score_function, b, of.heads.first + h, piece.query_offset + i, piece.key_offset);
  }
  options.return_weights = of.return_weights;
  options.mask.keep = keep_row(p, of.mask, piece, at);
  options.mask.bias = bias_row(p, of, piece, at);
  if (of.sinks.defined()) options.sinks = of.sinks.slice(0, h, h + 1);
  options.dropout = of.dropout;
  if (of.dropout > 0) options.dropout_keep = dropout_row(p, of, piece, at);
  return options;
}

AttentionResult composed_row(const Tensor& q, const Tensor& k, const Tensor& v, const Sizes& p,
                             const AttentionOptions& options, const Piece& piece, std::int64_t b, std::int64_t h,
                             std::int64_t i) {
  const AttentionOptions own = row_options(p, options, piece, b, h, i);
  const std::int64_t head = h / (p.hq / p.hkv);
  const auto source = [&](const Tensor& t) { return t.slice(0, b, b + 1).slice(1, head, head + 1).to(q.dtype()); };
  const Tensor query = cell(q, {b, h, i}), keys = source(k), values = source(v);
  return composed_attention(query, keys, values, validate(query, keys, values, own), own, nullptr);
}

}  // namespace attn
