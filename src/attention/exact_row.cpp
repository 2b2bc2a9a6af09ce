#include "attention/exact_row.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attention/composed.hpp"
#include "attention/special.hpp"
#include "random/philox.hpp"
#include "reference/loops.hpp"

namespace attn {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sums[4] = {};  // whose additions do not wait for each other
  std::size_t c = 0;
  for (; c + 4 <= a.size(); c += 4) {
    for (std::size_t i = 0; i < 4; ++i) sums[i] += a[c + i] * b[c + i];
  }
  for (; c < a.size(); ++c) sums[0] += a[c] * b[c];
  return sums[0] + sums[1] + sums[2] + sums[3];
}

// Finite numbers give finite scores, double's largest at most.
double times(double a, double b) { return reference::narrow<double>(static_cast<long double>(a) * b); }
double plus(double a, double b) { return reference::narrow<double>(static_cast<long double>(a) + b); }

// to += factor · x, to which a factor of 0 adds nothing.
void add(double* to, double factor, const std::vector<double>& x) {
  for (std::size_t c = 0; factor != 0 && c < x.size(); ++c) to[c] += factor * x[c];
}

}  // namespace

bool RowPlace::sees(std::int64_t j) const {
  const kernels::Problem& p = part.problem;
  if (j < p.first[i] || j >= p.last[i]) return false;
  const auto cell = [&](const auto& grid, std::int64_t row, std::int64_t column) {
    return grid.data[b * grid.batch + h * grid.head + row * grid.query + column * grid.key];
  };
  if (p.keep.data && !cell(p.keep, i, j)) return false;
  if (p.bias.data && cell(p.bias, i, j) == -std::numeric_limits<float>::infinity()) return false;
  if (p.distances.data) {
    const std::int64_t behind = std::clamp(p.centre[i] - j, p.distances.low, p.distances.high);
    if (p.distances.data[h * p.distances.head + behind] == -std::numeric_limits<float>::infinity()) return false;
  }
  return !p.blocks.keep.data ||
         cell(p.blocks.keep, (p.blocks.query_start + i) / p.blocks.query, (p.blocks.key_start + j) / p.blocks.key);
}

bool RowPlace::sees_any() const {
  const kernels::Problem& p = part.problem;
  if (p.sinks && p.sinks[h] != -std::numeric_limits<float>::infinity()) return true;
  for (std::int64_t j = p.first[i]; j < p.last[i]; ++j) {
    if (sees(j)) return true;
  }
  return false;
}

KeyGradients::KeyGradients(std::int64_t keys, std::int64_t d, std::int64_t dv)
    : k(at(keys * d)), v(at(keys * dv)), nan(at(keys)) {}

ExactRow::ExactRow(const Call& call, const Sizes& p, const AttentionOptions& options, const RowPlace& place)
    : call_(call),
      p_(p),
      options_(options),
      at_(place),
      first_(place.part.problem.first[place.i]),
      q_(row(call.q, place.h, place.query())),
      capped_(at(place.part.problem.last[place.i] - first_)),
      slopes_(capped_.size(), 1),
      scores_(capped_.size(), -kInf),
      weights_(capped_.size()),
      sees_(capped_.size()) {
  for (std::size_t n = 0; n < sees_.size(); ++n)
    sees_[n] = place.sees(first_ + static_cast<std::int64_t>(n)) ? Sight::seen : Sight::none;
  compute_scores();
  compute_weights();
}

// A row of a tensor (b, h, t, width).
std::vector<double> ExactRow::row(const Tensor& t, std::int64_t head, std::int64_t token) const {
  std::vector<double> numbers(at(t.size(3)));
  reference::visit_floating("attention", t.dtype(), [&](auto zero) {
    const auto* from = t.data<decltype(zero)>() + at_.item() * t.stride(0) + head * t.stride(1) + token * t.stride(2);
    for (double& number : numbers) number = to_double(*from), from += t.stride(3);
  });
  return numbers;
}

// Calls f(n, numbers) for the rows of keys or values that no mask hides from the query, as long as f says so.
template <class F>
void ExactRow::for_each_seen(const Tensor& t, const F& f) const {
  std::vector<double> numbers(at(t.size(3)));
  reference::visit_floating("attention", t.dtype(), [&](auto zero) {
    const auto* row =
        static_cast<const decltype(zero)*>(row_at(t, at_.item(), at_.key_head(), at_.part.piece.key + first_));
    for (std::size_t n = 0; n < sees_.size(); ++n, row += t.stride(2)) {
      if (sees_[n] == Sight::none) continue;
      std::transform(row, row + numbers.size(), numbers.begin(), [](auto x) { return to_double(x); });
      if (!f(n, numbers)) return;
    }
  });
}

// Dropout makes this of a weight of 1.
double ExactRow::kept(std::size_t n) const {
  if (options_.dropout == 0) return 1;
  const double factor = 1 / (1 - options_.dropout);
  const kernels::Dropout& dropout = at_.part.problem.dropout;
  const std::int64_t j = first_ + static_cast<std::int64_t>(n);
  if (const auto& keep = dropout.keep; keep.data)
    return keep.data[at_.b * keep.batch + at_.h * keep.head + at_.i * keep.query + j * keep.key] ? factor : 0;
  const auto word = [](std::int64_t number) { return static_cast<std::uint32_t>(number); };
  const kernels::Labels& of = at_.part.problem.labels;
  const auto words = philox(
      {word((of.key + j) / 4), word(of.query + at_.i), word(of.head + at_.h), word(of.batch + at_.b)}, dropout.key);
  return words[at((of.key + j) % 4)] >= dropout.threshold ? factor : 0;
}

// f(tile) with the capped scores in float32, as score functions take them.
template <class F>
void ExactRow::with_score_tile(const F& f) const {
  std::vector<float> scores(capped_.size());
  std::transform(capped_.begin(), capped_.end(), scores.begin(), reference::narrow<float>);
  const kernels::Labels& of = at_.part.problem.labels;
  const auto head = static_cast<std::int32_t>(of.head + at_.h), token = static_cast<std::int32_t>(of.query + at_.i);
  const auto keys = static_cast<std::int64_t>(scores.size());
  f(ScoreTile{scores.data(), 1, 1, keys, 1, of.batch + at_.b, of.key + first_, &head, &token});
}

// In the operator's order: scale, softcap, score function, biases. -inf stands for what the query does not see.
void ExactRow::compute_scores() {
  const ScoreFunction& function = options_.score_function;
  for_each_seen(call_.k, [&](std::size_t n, const std::vector<double>& key) {
    capped_[n] = times(dot(q_, key), p_.scale);
    if (options_.softcap > 0) {
      const double t = std::tanh(capped_[n] / options_.softcap);
      capped_[n] = options_.softcap * t, slopes_[n] = 1 - t * t;
    }
    scores_[n] = capped_[n];
    return function || scores_[n] < kInf;  // else all weights are NaN, whatever the other scores are
  });
  if (function) {
    with_score_tile([&](const ScoreTile& tile) {
      function.forward(&tile, function.user);
      for (std::size_t n = 0; n < scores_.size(); ++n) {
        if (sees_[n] == Sight::none) continue;
        scores_[n] = static_cast<double>(tile.scores[n]);
        if (scores_[n] == -kInf) sees_[n] = Sight::forbidden;
      }
    });
  }
  add_biases();
}

void ExactRow::add_biases() {
  const Tensor &bias = options_.mask.bias, &slopes = options_.alibi_slopes;
  const Tensor all = bias.defined() ? bias.expand(p_.scores_shape()) : bias;
  const double slope = slopes.defined() ? slopes.at({at_.h}) : 0;
  for (std::size_t n = 0; n < scores_.size(); ++n) {
    if (scores_[n] == -kInf) continue;
    const std::int64_t j = first_ + static_cast<std::int64_t>(n), distance = j - at_.part.piece.centre(at_.i);
    if (bias.defined()) scores_[n] = plus(scores_[n], all.at({at_.item(), at_.h, at_.query(), at_.part.piece.key + j}));
    if (options_.relative_bias.table.defined())
      scores_[n] = plus(scores_[n], relative_bias_at(options_.relative_bias, at_.h, distance));
    if (slopes.defined()) scores_[n] = plus(scores_[n], -times(slope, static_cast<double>(std::abs(distance))));
  }
}

void ExactRow::compute_weights() {
  const double sink = options_.sinks.defined() ? options_.sinks.at({at_.h}) : -kInf;
  const bool is_nan = std::any_of(scores_.begin(), scores_.end(), [](double x) { return !(x < kInf); });
  if (is_nan || std::isnan(sink)) {
    lse_ = kNan;
    for (std::size_t n = 0; n < scores_.size(); ++n) weights_[n] = sees_[n] == Sight::seen ? kNan : 0;
    return;
  }
  const double most =
      std::accumulate(scores_.begin(), scores_.end(), sink, [](double a, double b) { return std::max(a, b); });
  lse_ = most;
  if (most == -kInf) return;
  double sum = std::exp(sink - most);
  for (std::size_t n = 0; n < scores_.size(); ++n) sum += weights_[n] = std::exp(scores_[n] - most);
  // A weight that rounds to 0 stays above it: beside an infinity or NaN of its value it counts.
  for (std::size_t n = 0; n < weights_.size(); ++n) {
    if (scores_[n] > -kInf) weights_[n] = std::max(weights_[n] / sum, std::numeric_limits<double>::denorm_min());
  }
  lse_ = most + std::log(sum);
}

std::vector<double> ExactRow::output() const {
  std::vector<double> sum(at(p_.dv), std::isnan(lse_) ? lse_ : 0);
  if (std::isnan(lse_)) return sum;
  for_each_seen(call_.v, [&](std::size_t n, const std::vector<double>& value) {
    const double weight = weights_[n] * kept(n);
    for (std::size_t c = 0; weight != 0 && c < value.size(); ++c)
      sum[c] += std::isfinite(value[c]) ? weight * value[c] : 0;
    return true;
  });
  return sum;
}

void ExactRow::add_to_biases(const AttentionGradient& grad, std::size_t n, double d_score) const {
  const std::int64_t j = first_ + static_cast<std::int64_t>(n);
  if (grad.bias.defined()) {
    const Tensor row =
        grad.bias.expand(p_.scores_shape()).select(0, at_.item()).select(0, at_.h).select(0, at_.query());
    row.data<float>()[(at_.part.piece.key + j) * row.stride(0)] += static_cast<float>(d_score);
  }
  if (const Tensor& table = grad.relative_bias; table.defined()) {
    const RelativeBias& bias = options_.relative_bias;
    const std::int64_t bucket =
        relative_bucket(j - at_.part.piece.centre(at_.i), table.size(0), bias.bidirectional, bias.max_distance);
    table.data<double>()[bucket * table.size(1) + at_.h] += d_score;
  }
}

// Weights of NaN make NaN of all that the query sees.
void ExactRow::spread_nan(const AttentionGradient& grad, KeyGradients& keys) const {
  for (std::size_t n = 0; n < weights_.size(); ++n) {
    if (sees_[n] != Sight::seen) continue;
    keys.nan[at(first_) + n] = 1;
    add_to_biases(grad, n, kNan);
  }
}

// The gradient of what softmax takes: weight · (d_weight - Σ weight · d_weight).
std::vector<double> ExactRow::score_gradients(std::span<const double> weights, const std::vector<double>& d_output,
                                              const std::vector<double>* output) const {
  std::vector<double> d(weights.size());
  double mean = 0;
  for_each_seen(call_.v, [&](std::size_t n, const std::vector<double>& value) {
    d[n] = kept(n) * dot(d_output, value);
    mean += weights[n] * d[n];
    return true;
  });
  if (output) mean = dot(d_output, *output);
  for (std::size_t n = 0; n < d.size(); ++n) d[n] = sees_[n] == Sight::seen ? weights[n] * (d[n] - mean) : 0;
  return d;
}

void ExactRow::add_gradient(const Incoming& in, const AttentionGradient& grad, KeyGradients& keys) const {
  if (lse_ == -kInf) return;
  float* dq = static_cast<float*>(row_at(grad.q, at_.item(), at_.h, at_.query()));
  const double lse = row(in.lse.unsqueeze(-1), at_.h, at_.query())[0], share = share_of(lse_, lse, 0x1p-19);
  if (std::isnan(lse_) || std::isnan(share)) {
    std::fill_n(dq, p_.d, std::nanf(""));
    return spread_nan(grad, keys);
  }
  std::vector<double> weights = weights_;
  for (double& weight : weights) weight *= share;
  const std::vector<double> d_output = row(in.d_output, at_.h, at_.query()),
                            output = row(in.output, at_.h, at_.query());
  // A row that sees other keys, too, has its mean over all of them in its output.
  std::vector<double> d = score_gradients(weights, d_output, share == 1 ? nullptr : &output);
  for (std::size_t n = 0; n < d.size(); ++n) {
    if (sees_[n] != Sight::seen) continue;
    add_to_biases(grad, n, d[n]);
    add(keys.v.data() + (at(first_) + n) * d_output.size(), weights[n] * kept(n), d_output);
  }
  if (const ScoreFunction& function = options_.score_function) {
    std::vector<float> changed(d.size());
    std::transform(d.begin(), d.end(), changed.begin(), reference::narrow<float>);
    with_score_tile([&](const ScoreTile& before) { function.backward(&before, changed.data(), function.user); });
    for (std::size_t n = 0; n < d.size(); ++n) d[n] = d[n] == 0 ? 0 : static_cast<double>(changed[n]);
  }
  std::vector<double> sum(q_.size());
  for_each_seen(call_.k, [&](std::size_t n, const std::vector<double>& key) {
    if (sees_[n] == Sight::forbidden) return true;
    d[n] *= slopes_[n] * p_.scale;
    add(sum.data(), d[n], key);
    add(keys.k.data() + (at(first_) + n) * q_.size(), d[n], q_);
    return true;
  });
  std::transform(sum.begin(), sum.end(), dq, [](double x) { return static_cast<float>(x); });
}

}  // namespace attn
