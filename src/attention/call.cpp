#include "attention/call.hpp"

#include "random/philox.hpp"
#include "reference/elementwise.hpp"

namespace attn {
namespace {

template <class T>
kernels::Grid<T> grid(const Tensor& t, const Shape& shape) {
  if (!t.defined()) return {};
  const Tensor all = t.expand(shape);
  return {all.data<T>(), all.stride(0), all.stride(1), all.stride(2), all.stride(3)};
}

// Returns the part of a grid that begins at an item, a query and a key.
template <class T>
kernels::Grid<T> from(kernels::Grid<T> all, std::int64_t b, std::int64_t i, std::int64_t j) {
  if (all.data) all.data += b * all.batch + i * all.query + j * all.key;
  return all;
}

// A finite number beyond float32's range becomes its largest: that one is finite, too.
Tensor in_float32(const Tensor& t) {
  return t.dtype() == DType::f64 ? reference::saturate_to(t, DType::f32) : t.to(DType::f32);
}

// A block larger than all tokens holds as many as one that just does.
void set_blocks(kernels::Problem& problem, const Piece& piece, const Sizes& p, const Mask& mask) {
  const auto size = [](std::int64_t block, std::int64_t t) { return std::min(block, std::max<std::int64_t>(t, 1)); };
  problem.blocks.query = size(mask.block_query, p.tq), problem.blocks.key = size(mask.block_key, p.tk);
  problem.blocks.query_start = piece.query % problem.blocks.query;
  problem.blocks.key_start = piece.key % problem.blocks.key;
  problem.blocks.keep = from(grid<bool>(mask.block_keep, block_shape(p, mask)), piece.batch,
                             piece.query / problem.blocks.query, piece.key / problem.blocks.key);
}

}  // namespace

kernels::Rows rows_from(const Tensor& t, std::int64_t b, std::int64_t token) {
  const std::int64_t offset = b * t.stride(0) + token * t.stride(2),
                     bytes = static_cast<std::int64_t>(size_of(t.dtype()));
  return {static_cast<std::byte*>(t.raw()) + offset * bytes, t.stride(0), t.stride(1), t.stride(2)};
}

Tensor empty_like(const Tensor& like, const Shape& shape, DType dtype) {
  if (like.stride(1) >= like.stride(2) || shape[1] == 1) return Tensor::empty(shape, dtype);
  return Tensor::empty({shape[0], shape[2], shape[1], shape[3]}, dtype).transpose(1, 2);
}

Call::Call(const Tensor& query, const Tensor& key, const Tensor& value, const Sizes& p, const AttentionOptions& options)
    : Call(query, p, options) {
  k = readable(key), v = readable(value);
  for (Part& part : parts) {
    part.problem.k = rows_from(k, part.piece.batch, part.piece.key);
    part.problem.v = rows_from(v, part.piece.batch, part.piece.key);
  }
}

Call::Call(const Tensor& query, const kernels::Pages& cache, const Sizes& p, const AttentionOptions& options)
    : Call(query, p, options) {
  pages.assign(parts.size(), cache);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    pages[i].tables += parts[i].piece.batch;
    parts[i].problem.pages = &pages[i];
  }
}

Call::Call(const Tensor& query, const Sizes& p, const AttentionOptions& options)
    : q(readable(query)), pieces(attn::pieces(p, options, &arena)) {
  if (options.mask.bias.defined()) bias = in_float32(options.mask.bias);
  if (options.alibi_slopes.defined()) slopes = options.alibi_slopes.to(DType::f32).contiguous();
  if (options.relative_bias.table.defined()) distances = DistanceTable(options.relative_bias, pieces);
  if (options.sinks.defined()) sinks = options.sinks.to(DType::f32).contiguous();
  parts.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    Part& part = parts.emplace_back();
    part.piece = piece;
    describe(piece, p, options, part.problem);
    operations += 2.0 * static_cast<double>(piece.batches * p.hq * piece.tq) * static_cast<double>(piece.tk) *
                  static_cast<double>(p.d + p.dv);
  }
  place();
}

void Call::describe(const Piece& piece, const Sizes& p, const AttentionOptions& options,
                    kernels::Problem& problem) const {
  problem.batch = piece.batches, problem.hq = p.hq, problem.hkv = p.hkv;
  problem.tq = piece.tq, problem.tk = piece.tk, problem.d = p.d, problem.dv = p.dv;
  problem.labels = {piece.batch, options.heads.first, piece.query_offset + piece.query, piece.key_offset + piece.key};
  if (options.heads.all > 0 && p.hkv > 0) problem.all_key_heads = options.heads.all / (p.hq / p.hkv);
  problem.element = element(q.dtype());
  problem.q = rows_from(q, piece.batch, piece.query);
  problem.scale = static_cast<float>(p.scale);
  problem.softcap = static_cast<float>(options.softcap);
  const auto cells = [&]<class T>(const Tensor& t, T) {
    return from(grid<T>(t, p.scores_shape()), piece.batch, piece.query, piece.key);
  };
  problem.keep = cells(options.mask.keep, bool{});
  problem.bias = cells(bias, float{});
  if (options.mask.block_keep.defined()) set_blocks(problem, piece, p, options.mask);
  const ScoreFunction& score = options.score_function;
  problem.score = {score.forward, score.backward, score.user};
  if (options.dropout > 0 && !options.dropout_key) problem.dropout.keep = cells(options.dropout_keep, bool{});
  problem.dropout.factor = static_cast<float>(1 / (1 - options.dropout));
  if (options.dropout > 0 && options.dropout_key) {
    problem.dropout.key = *options.dropout_key;
    problem.dropout.threshold = static_cast<std::uint32_t>(philox_threshold(options.dropout));
  }
  problem.precision = options.precision;
  if (piece.has_window()) problem.window = std::min(piece.left, piece.tk) + std::min(piece.right, piece.tk) + 1;
  if (slopes.defined()) problem.alibi_slopes = slopes.data<float>();
  if (distances.defined()) problem.distances = distances.for_kernels();
  if (sinks.defined()) problem.sinks = sinks.data<float>();
}

// Finds where each query of the parts stands among the keys.
void Call::place() {
  std::size_t queries = 0;
  for (const Part& part : parts) queries += static_cast<std::size_t>(part.piece.tq);
  intervals.resize(3 * queries);
  std::int32_t* at = intervals.data();
  for (Part& part : parts) {
    const std::int64_t tq = part.piece.tq;
    std::int32_t *first = at, *last = first + tq, *centre = last + tq;
    for (std::int64_t i = 0; i < tq; ++i) {
      const Piece::Keys seen = part.piece.seen(i);
      first[i] = static_cast<std::int32_t>(seen.first), last[i] = static_cast<std::int32_t>(seen.last);
      centre[i] = static_cast<std::int32_t>(part.piece.centre(i));
    }
    part.problem.first = first, part.problem.last = last, part.problem.centre = centre;
    at += 3 * tq;
  }
}

}  // namespace attn
