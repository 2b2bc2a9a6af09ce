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

namespace attn {

// The rows of a tensor (b, h, t, d) from an item and a token on.
kernels::Rows rows_from(const Tensor& t, std::int64_t b, std::int64_t token);

// Unit stride in the last dimension, as the kernels read; one element long has any.
inline Tensor readable(const Tensor& t) { return t.size(-1) == 1 || t.stride(-1) == 1 ? t : t.contiguous(); }

// Without a value, (b, h, t, d); tokens before heads in memory where `like` has them so, that is, where it was split
// from projections: heads then merge without a copy.
Tensor empty_like(const Tensor& like, const Shape& shape, DType dtype);

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
};

// A call as the kernels take it, with all that its problems point to: it stays where it is.
struct Call {
  Arena arena;
  Tensor q, k, v, bias, slopes, sinks;
  DistanceTable distances;
  Vector<Piece> pieces;
  Vector<Part> parts{&arena};
  Vector<kernels::Pages> pages{&arena};    // of each part, where keys and values are in a cache
  Vector<std::int32_t> intervals{&arena};  // of each part: first, last and centre of its queries
  double operations = 0;

  Call(const Tensor& query, const Tensor& key, const Tensor& value, const Sizes& p, const AttentionOptions& options);
  Call(const Tensor& query, const kernels::Pages& cache, const Sizes& p, const AttentionOptions& options);
  // Without keys and values.
  Call(const Tensor& query, const Sizes& p, const AttentionOptions& options);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  void describe(const Piece& piece, const Sizes& p, const AttentionOptions& options, kernels::Problem& problem) const;
  void place();
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
