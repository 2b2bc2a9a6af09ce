#include "attention/score_tiles.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "reference/elementwise.hpp"

namespace attn {
namespace {

namespace ref = reference;

// call(tile, offset) for the scores of each head, contiguous (b, h, tq, tk).
template <class T, class F>
void for_each_head(const Tensor& scores, const std::vector<TileStart>& starts, F&& call) {
  const std::int64_t tq = scores.size(2), tk = scores.size(3);
  std::vector<std::int32_t> heads(static_cast<std::size_t>(tq)), tokens(heads);
  for (std::int64_t head = 0; head < scores.size(0) * scores.size(1); ++head) {
    const std::int64_t offset = head * tq * tk, item = head / scores.size(1);
    const TileStart& start = starts[static_cast<std::size_t>(item)];
    std::fill(heads.begin(), heads.end(), static_cast<std::int32_t>(start.head + head % scores.size(1)));
    std::iota(tokens.begin(), tokens.end(), static_cast<std::int32_t>(start.query));
    call(ScoreTileOf<T>{scores.data<T>() + offset, 1, tk, tk, tq, item, start.key, heads.data(), tokens.data()},
         offset);
  }
}

bool in_float64(const Tensor& scores, bool has_function) { return scores.dtype() == DType::f64 && has_function; }

}  // namespace

Tensor apply_score_function(const Tensor& scores, const ScoreFunction& function, const std::vector<TileStart>& starts) {
  if (in_float64(scores, function.forward64)) {
    Tensor changed = scores.clone();
    for_each_head<double>(changed, starts,
                          [&](const ScoreTile64& t, std::int64_t) { function.forward64(&t, function.user); });
    return changed;
  }
  const Tensor changed = ref::saturate_to(scores, DType::f32).clone();
  for_each_head<float>(changed, starts, [&](const ScoreTile& t, std::int64_t) { function.forward(&t, function.user); });
  return changed.to(scores.dtype());
}

Tensor score_function_backward(const Tensor& d_new, const Tensor& scores, const ScoreFunction& function,
                               const std::vector<TileStart>& starts) {
  const bool wide = in_float64(scores, function.backward64);
  const DType dtype = wide ? DType::f64 : DType::f32;
  const Tensor before = ref::saturate_to(scores, dtype).contiguous(), d_old = ref::saturate_to(d_new, dtype).clone();
  if (wide) {
    for_each_head<double>(before, starts, [&](const ScoreTile64& t, std::int64_t offset) {
      function.backward64(&t, d_old.data<double>() + offset, function.user);
    });
  } else {
    for_each_head<float>(before, starts, [&](const ScoreTile& t, std::int64_t offset) {
      function.backward(&t, d_old.data<float>() + offset, function.user);
    });
  }
  return ref::map("score_function", d_old.to(d_new.dtype()), d_new,
                  [](auto old, auto after) { return after == 0 ? after : old; });
}

}  // namespace attn
