// One token's way through a state: what the state recalls for its key, what is corrected, and what it recalls after.
#include <cmath>
#include <numbers>

#include "attn/linear_attention.hpp"
#include "common/format.hpp"
#include "explain/walk.hpp"

namespace attn::tool {
namespace {

constexpr std::int64_t kMostStateRows = 8;

// (t, d) as (1, 1, t, d), the first `tokens`.
Tensor one_head(const Tensor& m, std::int64_t tokens) { return m.slice(0, 0, tokens).unsqueeze(0).unsqueeze(0); }

std::string state_text(const Tensor& state) {
  std::string text;
  for (std::int64_t d = 0; d < std::min(state.size(0), kMostStateRows); ++d)
    text.append(formatted("  S[{}] = {}\n", d + 1, vector_text(values_of(state.select(0, d)))));
  return state.size(0) > kMostStateRows ? text + "  …\n" : text;
}

// Sᵀ x
std::vector<double> read(const Tensor& state, const std::vector<double>& x) {
  std::vector<double> y(static_cast<std::size_t>(state.size(1)));
  for (std::int64_t d = 0; d < state.size(0); ++d) {
    for (std::size_t c = 0; c < y.size(); ++c)
      y[c] += state.at({d, static_cast<std::int64_t>(c)}) * x[static_cast<std::size_t>(d)];
  }
  return y;
}

}  // namespace

// The state is multiplied by what its decay leaves.
std::string Walk::faded(const Tensor& state) {
  const double decay = row("decay", query_)[0], kept = std::exp(decay);
  for (std::int64_t i = 0; i < state.numel(); ++i) state.data<float>()[i] *= static_cast<float>(kept);
  return heading("Decay: the state fades") +
         formatted("  it keeps exp({}) = {}; at this rate half is left after {} tokens\n", number_text(decay),
                   number_text(kept), number_text(decay < 0 ? std::numbers::ln2 / -decay : INFINITY));
}

// The value becomes what a delta rule writes in its place.
std::string Walk::corrected(const Tensor& state, const Row& key, Row& value) {
  const Row recalled = read(state, key), given = value;
  const double beta = row("beta", query_)[0];
  for (std::size_t c = 0; c < value.size(); ++c) value[c] = beta * (given[c] - recalled[c]);
  // A heading counts the steps, so that the first is made before the second.
  std::string out = heading("Recall: what the state holds for this key, Sᵀ · k");
  out += formatted("  recall = {}\n", vector_text(recalled));
  out += heading("Correction: beta · (value - recall)");
  return out + formatted("  {} · ({}\n  - {})\n  = {}\n", number_text(beta), vector_text(given), vector_text(recalled),
                         vector_text(value));
}

std::string Walk::recurrence() {
  const std::int64_t n = query_ + 1;
  const bool linear = !has("beta");
  const Tensor keys = matrix("mapped keys"), values = matrix("values");
  LinearAttentionOptions options;
  options.rule = linear ? StateRule::plain : StateRule::delta;
  const auto gates = [&](const char* step, std::int64_t tokens) {
    return has(step) ? one_head(matrix(step), tokens).select(3, 0) : Tensor{};
  };
  const auto state_after = [&](std::int64_t tokens) {
    options.beta = gates("beta", tokens), options.decay = gates("decay", tokens);
    const Tensor k = one_head(keys, tokens);
    return linear_attention(k, k, one_head(values, tokens), options).state.select(0, 0).select(0, 0).contiguous();
  };
  const Row key = row("mapped keys", query_), value = row("values", query_), query = row("mapped queries", query_);
  std::string text = heading(linear ? "Feature map: elu + 1, which is above 0" : "Mapping: silu, then a length of 1");
  text.append(
      formatted("  query_{} becomes q = {}\n  key_{} becomes k = {}\n", n, vector_text(query), n, vector_text(key)));
  Tensor state = state_after(query_);
  text.append(heading(formatted("State: all that is kept of {} earlier token{}, {} × {} numbers", query_,
                                query_ == 1 ? "" : "s", state.size(0), state.size(1))) +
              state_text(state));
  if (has("decay")) text.append(faded(state));
  Row written = value;
  if (!linear) text.append(corrected(state, key, written));
  state = state_after(n);
  text.append(heading(linear ? "Write: S + k ⊗ value" : "Write: S + k ⊗ correction") + state_text(state));
  if (!linear) {
    text.append(formatted("  now it recalls {} for k:\n  1 - beta of what it recalled, and beta of the value\n  {}\n",
                          vector_text(read(state, key)), vector_text(value)));
  }
  Row found = read(state, query);
  text.append(heading(linear ? "Read: Sᵀ · q, divided by the sum of q · k over all keys so far" : "Read: Sᵀ · q / √d"));
  double factor = 1 / std::sqrt(static_cast<double>(keys.size(1)));
  if (linear) {
    double sum = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      const Row k = row("mapped keys", j);
      for (std::size_t d = 0; d < k.size(); ++d) sum += k[d] * query[d];
    }
    factor = 1 / sum;
    text.append(formatted("  the sum is {}\n", number_text(sum)));
  }
  text.append(formatted("  Sᵀ · q = {}\n", vector_text(found)));
  for (double& x : found) x *= factor;
  return text + style_.strong(formatted("  context_{} = {}", n, vector_text(found))) +
         "\nThe same, without a state: these are the effective weights of earlier tokens.\n";
}

std::string Walk::normalisation() {
  if (!has("normed")) return {};
  return heading(has("decay") ? "Norm: the context by its root mean square, times silu(W_gate · x)"
                              : "Norm: the context by its root mean square") +
         formatted("  normed_{} = {}\n", query_ + 1, vector_text(row("normed", query_)));
}

}  // namespace attn::tool
