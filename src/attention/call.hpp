// A call of the operator as the kernels take it: its pieces as problems, side by side on all threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory_resource>
#include <numeric>
#include <vector>

#include "attention/element.hpp"
#include "attention/pieces.hpp"
#include "attention/relative_bias.hpp"
#include "core/parallel.hpp"
#include "kernels/problem.hpp"
#include "random/philox.hpp"
#include "reference/elementwise.hpp"

namespace attn {

// The rows of a tensor (b, h, t, d) from an item and a token on.
inline kernels::Rows rows_from(const Tensor& t, std::int64_t b, std::int64_t token) {
  const std::int64_t offset = b * t.stride(0) + token * t.stride(2),
                     bytes = static_cast<std::int64_t>(size_of(t.dtype()));
  return {static_cast<std::byte*>(t.raw()) + offset * bytes, t.stride(0), t.stride(1), t.stride(2)};
}

// Unit stride in the last dimension, as the kernels read; one element long has any.
inline Tensor readable(const Tensor& t) { return t.size(-1) == 1 || t.stride(-1) == 1 ? t : t.contiguous(); }

// Without a value, (b, h, t, d); tokens before heads in memory where `like` has them so, that is, where it was split
// from projections: heads then merge without a copy.
inline Tensor empty_like(const Tensor& like, const Shape& shape, DType dtype) {
  if (like.stride(1) >= like.stride(2) || shape[1] == 1) return Tensor::empty(shape, dtype);
  return Tensor::empty({shape[0], shape[2], shape[1], shape[3]}, dtype).transpose(1, 2);
}

template <class T>
kernels::Grid<T> grid(const Tensor& t, const Shape& shape) {
  if (!t.defined()) return {};
  const Tensor all = t.expand(shape);
  return {all.data<T>(), all.stride(0), all.stride(1), all.stride(2), all.stride(3)};
}

// From an item, a query and a key on.
template <class T>
kernels::Grid<T> from(kernels::Grid<T> all, std::int64_t b, std::int64_t i, std::int64_t j) {
  if (all.data) all.data += b * all.batch + i * all.query + j * all.key;
  return all;
}

template <class T>
using Vector = std::pmr::vector<T>;

// Where the vectors of a call of few pieces are: a call of few tokens takes less time than their allocations would.
class Arena : public std::pmr::monotonic_buffer_resource {
 public:
  Arena() : std::pmr::monotonic_buffer_resource(room_, sizeof room_) {}

 private:
  alignas(64) std::byte room_[3072];
};

// One piece of a call as the kernels take it.
struct Part {
  Piece piece;
  kernels::Problem problem{};
  kernels::Pages pages{};  // of its items, where keys and values are in a cache
};

// A call as the kernels take it, with the tensors that its pointers look into.
struct Call {
  Arena arena;
  Tensor q, k, v, bias, slopes, sinks;
  DistanceTable distances;
  Vector<Piece> pieces;
  Vector<Part> parts{&arena};
  Vector<std::int32_t> intervals{&arena};  // of each part: first, last and centre of its queries
  double operations = 0;

  Call(const Tensor& query, const Tensor& key, const Tensor& value, const Sizes& p, const AttentionOptions& options)
      : Call(query, p, options) {
    k = readable(key), v = readable(value);
    for (Part& part : parts) {
      part.problem.k = rows_from(k, part.piece.batch, part.piece.key);
      part.problem.v = rows_from(v, part.piece.batch, part.piece.key);
    }
  }

  Call(const Tensor& query, const kernels::Pages& pages, const Sizes& p, const AttentionOptions& options)
      : Call(query, p, options) {
    for (Part& part : parts) {
      part.pages = pages;
      part.pages.tables += part.piece.batch;
      part.problem.pages = &part.pages;
    }
  }

  // Without keys and values.
  Call(const Tensor& query, const Sizes& p, const AttentionOptions& options)
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

  Call(const Call&) = delete;

 private:
  void describe(const Piece& piece, const Sizes& p, const AttentionOptions& options, kernels::Problem& problem) const {
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

  // What float32 does not hold ends at its largest: that is not infinite.
  static Tensor in_float32(const Tensor& t) {
    return t.dtype() == DType::f64 ? reference::saturate_to(t, DType::f32) : t.to(DType::f32);
  }

  // A block larger than all tokens holds as many as one that just does.
  static void set_blocks(kernels::Problem& problem, const Piece& piece, const Sizes& p, const Mask& mask) {
    const auto size = [](std::int64_t block, std::int64_t t) { return std::min(block, std::max<std::int64_t>(t, 1)); };
    problem.blocks.query = size(mask.block_query, p.tq), problem.blocks.key = size(mask.block_key, p.tk);
    problem.blocks.query_start = piece.query % problem.blocks.query;
    problem.blocks.key_start = piece.key % problem.blocks.key;
    problem.blocks.keep = from(grid<bool>(mask.block_keep, block_shape(p, mask)), piece.batch,
                               piece.query / problem.blocks.query, piece.key / problem.blocks.key);
  }

  // Where each query of the parts stands among the keys.
  void place() {
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
};

// Whether the kernels may take numbers below 2^-126 for zero. They widen float16 by way of such numbers.
inline bool may_zero_subnormals(const kernels::Problem& p) {
  return p.element != kernels::Element::f16 && !(p.pages && p.pages->element == kernels::Element::f16);
}

// The places of plans, those of most keys first: their tasks take longest, and none of these shall begin last.
template <class Plan>
Vector<std::size_t> longest_first(const Vector<Plan>& plans, std::pmr::memory_resource* memory) {
  Vector<std::size_t> order(plans.size(), memory);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto longer = [&](std::size_t a, std::size_t b) { return plans[a].keys > plans[b].keys; };
  if (plans.size() > 1) std::stable_sort(order.begin(), order.end(), longer);
  return order;
}

// Runs several problems side by side, each by its plan: the tasks of a phase are those of one problem after the other,
// on all threads. run(problem, phase, task, shared, scratch), the problem by its place.
template <class Plan, class Run>
void run_plans(const Vector<Plan>& plans, double operations, Run&& run) {
  constexpr std::size_t line = 64;
  Arena arena;
  Vector<std::size_t> shared_at(&arena);
  shared_at.reserve(plans.size());
  std::size_t shared_bytes = 0, scratch = 0;
  int phases = 0;
  bool in_order = false;
  for (const Plan& plan : plans) {
    if constexpr (requires { plan.steps_apart; }) in_order = in_order || plan.steps_apart;
    shared_at.push_back(shared_bytes);
    shared_bytes += (plan.shared + line - 1) / line * line;
    scratch = std::max(scratch, plan.scratch), phases = std::max(phases, plan.phases);
  }
  const CallMemory shared(shared_bytes);
  const Vector<std::size_t> order = longest_first(plans, &arena);
  Vector<std::int64_t> ends(plans.size(), &arena);  // of the problems' tasks
  for (int phase = 0; phase < phases; ++phase) {
    std::int64_t tasks = 0;
    for (std::size_t i = 0; i < plans.size(); ++i)
      ends[i] = tasks += phase < plans[order[i]].phases ? plans[order[i]].tasks[phase] : 0;
    const auto work = [&](std::int64_t task, void* own) {
      const auto turn = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), task) - ends.begin());
      const std::int64_t first = turn == 0 ? 0 : ends[turn - 1];
      const std::size_t at = order[turn];
      run(at, phase, plans[at].begun(phase, task - first), static_cast<std::byte*>(shared.get()) + shared_at[at], own);
    };
    (in_order ? parallel_in_order : parallel_for)(tasks, scratch, operations, work);
  }
}

}  // namespace attn
