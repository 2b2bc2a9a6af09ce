// A function of the user's own on the scores, inside the fused kernels: relative positions, other caps, any idea that
// changes scores one by one needs no new kernel. FlexAttention's score_mod (Dong et al. 2024, arXiv 2412.05496), with
// its gradient.
#pragma once

#include <memory>
#include <utility>

#include "attn/score_tile.hpp"

namespace attn {

// It acts on q · kᵀ · scale, after a softcap and before biases, ALiBi and masks, in natural units (softmax is exp of
// them).
//
// - A new score depends on the old one and its coordinates alone: not on the tile's other scores, nor on how often or
//   in which order tiles come. Functions run on several threads at once, must not throw, and must not keep the tile.
// - They also see scores that masks hide. What they make of those is ignored.
// - -inf forbids the key, but does not hide infinities and NaN in its value, which only masks do. NaN or +inf for a key
//   that a query sees makes that query's output, weights and log-sum-exp NaN, as NaN in the query does, and no other's.
// - backward() is called with scores as forward() saw them; a gradient of 0 stays 0 whatever it returns.
// - float64 inputs take the functions of ScoreTile64; without them scores are rounded to float32 for the others.
struct ScoreFunction {
  ScoreForward forward = nullptr;    // null: there is no score function
  ScoreBackward backward = nullptr;  // null: attention_backward() throws
  ScoreForward64 forward64 = nullptr;
  ScoreBackward64 backward64 = nullptr;
  void* user = nullptr;                    // handed to each of them
  std::shared_ptr<const void> owner = {};  // keeps `user` alive; null where the caller does

  explicit operator bool() const noexcept { return forward != nullptr; }

  // From functions of one score: f(score, b, h, i, j) is the new score of query i of head h and key j, derivative(…)
  // its derivative by the old one. Both take float and double scores (`auto`), or double alone. Indices are
  // std::int32_t.
  template <class F, class D>
  static ScoreFunction elementwise(F f, D derivative);
  template <class F>
  static ScoreFunction elementwise(F f);  // without gradient
};

namespace score_function_detail {

// change(place in the tile, h, i, j), a key at a time.
template <class T, class F>
void for_each(const ScoreTileOf<T>& tile, F&& change) {
  const auto all = [&](std::int64_t query_step) {
    for (std::int64_t r = 0; r < tile.keys; ++r) {
      const auto key = static_cast<std::int32_t>(tile.first_key + r);
      for (std::int64_t c = 0; c < tile.queries; ++c) {
        change(r * tile.key_step + c * query_step, tile.heads[c], tile.tokens[c], key);
      }
    }
  };
  tile.query_step == 1 ? all(1) : all(tile.query_step);  // a step that the compiler knows lets it use vectors
}

template <class T, class F>
void forward(const ScoreTileOf<T>* tile, const F& f) noexcept {
  const auto batch = static_cast<std::int32_t>(tile->batch);
  for_each(*tile, [&](std::int64_t at, std::int32_t h, std::int32_t i, std::int32_t j) {
    tile->scores[at] = static_cast<T>(f(tile->scores[at], batch, h, i, j));
  });
}

template <class T, class D>
void backward(const ScoreTileOf<T>* before, T* d_scores, const D& derivative) noexcept {
  const auto batch = static_cast<std::int32_t>(before->batch);
  for_each(*before, [&](std::int64_t at, std::int32_t h, std::int32_t i, std::int32_t j) {
    d_scores[at] *= static_cast<T>(derivative(before->scores[at], batch, h, i, j));
  });
}

}  // namespace score_function_detail

template <class F, class D>
ScoreFunction ScoreFunction::elementwise(F f, D derivative) {
  namespace detail = score_function_detail;
  using Both = std::pair<F, D>;
  auto both = std::make_shared<Both>(std::move(f), std::move(derivative));
  ScoreFunction result;
  result.forward = [](const ScoreTile* t, void* u) { detail::forward(t, static_cast<const Both*>(u)->first); };
  result.forward64 = [](const ScoreTile64* t, void* u) { detail::forward(t, static_cast<const Both*>(u)->first); };
  result.backward = [](const ScoreTile* t, float* d, void* u) {
    detail::backward(t, d, static_cast<const Both*>(u)->second);
  };
  result.backward64 = [](const ScoreTile64* t, double* d, void* u) {
    detail::backward(t, d, static_cast<const Both*>(u)->second);
  };
  result.user = both.get();
  result.owner = std::move(both);
  return result;
}

template <class F>
ScoreFunction ScoreFunction::elementwise(F f) {
  const auto none = [](auto score, auto...) { return score; };
  ScoreFunction result = elementwise(std::move(f), none);
  result.backward = nullptr, result.backward64 = nullptr;
  return result;
}

}  // namespace attn
