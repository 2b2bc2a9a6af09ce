#include "oracle/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace oracle {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kUnknown = std::numeric_limits<double>::quiet_NaN();
// A size past float32's range on the way is known to be large, and no more.
constexpr double kMost = 1e38, kBeyond = 1e200;
double in_range(double size) { return size > kMost ? kBeyond : size; }

// Float32 may take such a weight for zero, also after what it was multiplied by.
bool may_vanish(double weight) { return weight < 0x1p-60; }

// Returns a factor's size as rounding sees it: kernels that multiply parts of float32 lose bits below 2^-102.
double magnitude(double x) { return std::fabs(x) + 0x1p-100; }

void add(Number& to, double term, double size) { to.value += term, to.size += size; }

double largest(const double* x, std::int64_t n) {
  double most = 0;
  for (std::int64_t c = 0; c < n; ++c) most = std::fmax(most, std::fabs(x[c]));
  return most;
}

double sum_of(const double* x, std::int64_t n) {
  double sum = 0;
  for (std::int64_t c = 0; c < n; ++c) sum += std::fabs(x[c]);
  return sum;
}

// One query of one head, and what it makes of the keys that it sees.
struct Row {
  const Problem& p;
  std::int64_t b, h, i;
  std::vector<bool> seen;
  std::vector<double> capped, slope;  // the score that the score function gets; d(score)/d(q · k · scale)
  std::vector<double> score, weight;  // as softmax sees it; 0 where unseen
  double lse = -kInf, sink_weight = 0, strain = 0;

  Row(const Problem& problem, std::int64_t batch, std::int64_t head, std::int64_t query)
      : p(problem), b(batch), h(head), i(query) {
    const auto n = static_cast<std::size_t>(p.keys);
    seen.assign(n, false), capped.assign(n, 0), slope.assign(n, 1), score.assign(n, -kInf), weight.assign(n, 0);
    for (std::int64_t j = 0; j < p.keys; ++j) {
      if (p.sees(b, h, i, j)) compute_score(j);
    }
    compute_weights();
  }

  const double* q() const {
    return &p.q[static_cast<std::size_t>(((b * p.query_heads + h) * p.queries + i) * p.depth)];
  }
  std::size_t key_row(std::int64_t j) const {
    const std::int64_t head = h / (p.query_heads / p.key_heads);
    return static_cast<std::size_t>((b * p.key_heads + head) * p.keys + j);
  }
  const double* k(std::int64_t j) const { return p.k.data() + key_row(j) * static_cast<std::size_t>(p.depth); }
  const double* v(std::int64_t j) const { return p.v.data() + key_row(j) * static_cast<std::size_t>(p.value_depth); }

  void compute_score(std::int64_t j) {
    const auto n = static_cast<std::size_t>(j);
    double dot = 0, size = 0;
    for (std::int64_t c = 0; c < p.depth; ++c) dot += q()[c] * k(j)[c], size += magnitude(q()[c]) * magnitude(k(j)[c]);
    if (p.fixed_point) size += largest(q(), p.depth) * sum_of(k(j), p.depth);
    double x = dot * p.scale;
    const double before = size;
    size *= std::fabs(p.scale);
    size = in_range(std::fmax(before, size)) == kBeyond ? kBeyond : size;
    if (p.softcap > 0) {
      const double t = std::tanh(x / p.softcap);
      slope[n] = 1 - t * t;
      x = p.softcap * t;
      size += std::fabs(x);
    }
    capped[n] = x;
    if (p.change) {
      const std::int64_t query = p.query_number(b, i), key = p.key_number(b, j);
      x = p.change(capped[n], b, h, query, key);
      slope[n] *= p.change_slope ? p.change_slope(capped[n], b, h, query, key) : 1;
    }
    if (p.bias.defined()) x += p.bias.at(b, h, i, j), size += std::fabs(p.bias.at(b, h, i, j));
    if (!p.relative.values.empty()) {
      const double learned = p.relative.values[relative_place(j)];
      x += learned, size += std::fabs(learned);
    }
    if (!p.slopes.empty()) {
      const double distance = p.slopes[static_cast<std::size_t>(h)] * std::fabs(static_cast<double>(distance_to(j)));
      x -= distance, size += std::fabs(distance);
    }
    score[n] = x;
    seen[n] = x != -kInf;
    if (seen[n]) strain = std::fmax(strain, in_range(size));
  }

  // Something that it sees is not finite, or past float32's range: what comes of it depends on the order of sums.
  bool is_touched(const double* d_output) const {
    const auto finite = [](const double* first, std::int64_t n) {
      return std::all_of(first, first + n, [](double x) { return std::isfinite(x); });
    };
    bool any = false, touched = !std::isfinite(strain) || strain >= kBeyond;
    touched = touched || (d_output && !finite(d_output, p.value_depth));
    for (std::int64_t j = 0; j < p.keys; ++j) {
      if (!allowed(j)) continue;
      any = true;
      touched = touched || std::isnan(score[static_cast<std::size_t>(j)]);  // of a bias
      touched = touched || !finite(k(j), p.depth) || !finite(v(j), p.value_depth);
    }
    return touched || (any && !finite(q(), p.depth));
  }

  // Something of it is not finite, its scores, the values that it sees, or the gradient that comes in, and some key may
  // have no part of that: by dropout, a score function, or a weight that vanishes.
  bool is_uncertain(const double* d_output) const {
    bool special = std::isnan(lse) || std::isinf(sink_weight), uncertain = false;
    for (std::int64_t c = 0; c < p.value_depth; ++c) special = special || !std::isfinite(d_output[c]);
    for (std::int64_t j = 0; j < p.keys; ++j) {
      if (!allowed(j)) continue;
      const auto n = static_cast<std::size_t>(j);
      uncertain = uncertain || !seen[n] || kept(j) == 0 || may_vanish(weight[n]);
      for (std::int64_t c = 0; c < p.value_depth; ++c) special = special || !std::isfinite(v(j)[c]);
    }
    return special && uncertain;
  }

  // j - centre, where the centre is the key at the query's own position in its sequence.
  std::int64_t distance_to(std::int64_t j) const;
  std::size_t relative_place(std::int64_t j) const {
    return static_cast<std::size_t>(p.relative.bucket(distance_to(j)) * p.query_heads + h);
  }

  void compute_weights() {
    double most = p.sinks.empty() ? -kInf : p.sinks[static_cast<std::size_t>(h)];
    strain = most == -kInf ? strain : std::fmax(strain, std::fabs(most));
    for (const double x : score) most = std::isnan(x) || std::isnan(most) ? x + most : std::fmax(most, x);
    if (most == -kInf) return;
    double sum = p.sinks.empty() ? 0 : std::exp(p.sinks[static_cast<std::size_t>(h)] - most);
    for (std::size_t j = 0; j < score.size(); ++j) sum += seen[j] ? std::exp(score[j] - most) : 0;
    lse = most + std::log(sum);
    for (std::size_t j = 0; j < score.size(); ++j) weight[j] = seen[j] ? std::exp(score[j] - most) / sum : 0;
    if (!p.sinks.empty()) sink_weight = std::exp(p.sinks[static_cast<std::size_t>(h)] - most) / sum;
  }

  // Returns how large a weight may be. Scores that are not even known to 1/64 tell nothing of weights.
  double most_of(double w) const { return p.score_roundoff * strain < 1.0 / 64 ? magnitude(w) : 64; }

  // Returns what a term may lose beside its roundoff, in roundoffs: float32's kernels may take numbers below 2^-126 for
  // zero.
  double vanishing() const { return p.roundoff > 0x1p-50 ? 0x1p-126 / p.roundoff : 0; }

  // Returns the size that errors of this row's numbers are measured by: of exp(score - lse), where both were rounded.
  double size_of(double w) const {
    const double rounded = strain + (std::isfinite(lse) ? std::fabs(lse) : 0);
    return most_of(w) * (1 + rounded * p.score_roundoff / p.roundoff);
  }

  bool allowed(std::int64_t j) const { return p.sees(b, h, i, j); }

  // Returns what dropout multiplies a weight by.
  double kept(std::int64_t j) const {
    if (p.dropout == 0) return 1;
    return p.dropout_keep.at(b, h, i, j) != 0 ? 1 / (1 - p.dropout) : 0;
  }
};

// The sequence of a query, and the place in it: queries [q0, q0 + nq), keys [k0, k0 + nk).
struct Place {
  std::int64_t k0 = 0, nk = 0, centre = 0;
};

Place place_of(const Problem& p, std::int64_t b, std::int64_t i) {
  std::int64_t q0 = 0, nq = p.queries;
  Place at{0, p.keys, 0};
  if (!p.key_lengths.empty()) at.nk = p.key_lengths[static_cast<std::size_t>(b)];
  for (std::size_t s = 0; s + 1 < p.query_starts.size(); ++s) {
    if (i < p.query_starts[s] || i >= p.query_starts[s + 1]) continue;
    q0 = p.query_starts[s], nq = p.query_starts[s + 1] - q0;
    at.k0 = p.key_starts[s], at.nk = p.key_starts[s + 1] - at.k0;
  }
  at.centre = at.k0 + (i - q0) + (p.bottom_right ? at.nk - nq : 0);
  if (!p.query_offset.empty()) at.centre = p.query_number(b, i) - p.key_number(b, 0);
  return at;
}

std::int64_t Row::distance_to(std::int64_t j) const { return j - place_of(p, b, i).centre; }

template <class F>
void for_rows(const Problem& p, F&& f) {
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.query_heads; ++h) {
      for (std::int64_t i = 0; i < p.queries; ++i) f(Row(p, b, h, i));
    }
  }
}

std::size_t count(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  return static_cast<std::size_t>(a * b * c * d);
}

}  // namespace

std::size_t Grid::place(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  std::size_t at = 0;
  const std::int64_t index[] = {b, h, i, j};
  for (std::size_t dim = 0; dim < 4; ++dim) {
    at = at * static_cast<std::size_t>(size[dim]) + static_cast<std::size_t>(size[dim] == 1 ? 0 : index[dim]);
  }
  return at;
}

std::int64_t Relative::bucket(std::int64_t distance) const {
  const std::int64_t side = bidirectional ? buckets / 2 : buckets, exact = side / 2;
  const std::int64_t start = bidirectional && distance > 0 ? side : 0;
  const std::int64_t n = bidirectional ? std::llabs(distance) : distance < 0 ? -distance : 0;
  if (n < exact) return start + n;
  const float ratio = static_cast<float>(n) / static_cast<float>(exact);
  const auto log = static_cast<float>(std::log(static_cast<double>(ratio)));
  const auto whole = static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  const float step = log / whole * static_cast<float>(side - exact);
  return start + std::min<std::int64_t>(exact + static_cast<std::int64_t>(step), side - 1);
}

std::int64_t Problem::query_number(std::int64_t b, std::int64_t i) const {
  return i + (query_offset.empty() ? 0 : query_offset[static_cast<std::size_t>(b)]);
}

std::int64_t Problem::key_number(std::int64_t b, std::int64_t j) const {
  return j + (key_offset.empty() ? 0 : key_offset[static_cast<std::size_t>(b)]);
}

bool Problem::sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  const Place at = place_of(*this, b, i);
  if (j < at.k0 || j >= at.k0 + at.nk) return false;
  if (causal && j > at.centre) return false;
  if (window_left >= 0 && at.centre - j > window_left) return false;
  if (window_right >= 0 && j - at.centre > window_right) return false;
  if (keep.defined() && keep.at(b, h, i, j) == 0) return false;
  if (block_keep.defined() && block_keep.at(b, h, i / block_query, j / block_key) == 0) return false;
  return !(bias.defined() && bias.at(b, h, i, j) == -kInf);
}

Result attention(const Problem& p) {
  Result r;
  for_rows(p, [&](const Row& row) {
    const double unknown = p.only_hidden_specials && row.is_touched(nullptr) ? kUnknown : 0;
    r.lse.push_back({row.lse, (row.strain + std::fabs(row.lse)) * p.score_roundoff / p.roundoff + 1 + unknown});
    std::vector<Number> out(static_cast<std::size_t>(p.value_depth));
    for (std::int64_t j = 0; j < p.keys; ++j) {
      const double w = row.weight[static_cast<std::size_t>(j)];
      const bool seen = row.seen[static_cast<std::size_t>(j)];
      r.weights.push_back({w, seen ? row.size_of(w) + unknown : row.allowed(j) ? unknown : 0});
      for (std::size_t c = 0; c < out.size(); ++c) {
        const bool counts = seen && row.kept(j) != 0;
        if (!std::isfinite(row.v(j)[c]) && row.allowed(j) && (!counts || may_vanish(w))) out[c].size = kUnknown;
        if (!counts) continue;
        const double v = row.v(j)[c] * row.kept(j);
        add(out[c], w == 0 ? 0 : w * v, row.size_of(w) * magnitude(v) + row.vanishing() * row.kept(j));
      }
    }
    double unit = 0;
    for (std::int64_t j = 0; p.fixed_point && j < p.keys; ++j)
      unit = std::fmax(unit, row.weight[static_cast<std::size_t>(j)] * largest(row.v(j), p.value_depth));
    for (Number& x : out) x.size += unit * static_cast<double>(p.keys) + unknown;
    r.output.insert(r.output.end(), out.begin(), out.end());
  });
  return r;
}

namespace {

// Marks the gradients of a query and a key as unknown: whether the two have a part of them at all is not known.
void forget(const Row& row, std::int64_t j, Gradient& g) {
  const auto forget_row = [](Numbers& all, std::size_t row_number, std::int64_t width) {
    for (std::int64_t c = 0; c < width; ++c)
      all[row_number * static_cast<std::size_t>(width) + static_cast<std::size_t>(c)].size = kUnknown;
  };
  const Problem& p = row.p;
  forget_row(g.q, count(row.b * p.query_heads + row.h, p.queries, 1, 1) + static_cast<std::size_t>(row.i), p.depth);
  forget_row(g.k, row.key_row(j), p.depth);
  forget_row(g.v, row.key_row(j), p.value_depth);
  if (p.bias.defined()) g.bias[p.bias.place(row.b, row.h, row.i, j)].size = kUnknown;
  if (!p.sinks.empty()) g.sinks[static_cast<std::size_t>(row.h)].size = kUnknown;
  if (!p.relative.values.empty()) g.relative[row.relative_place(j)].size = kUnknown;
}

// Gradients of a row's weights, dropped or not: d_out · v_j; and their mean Σ weight · d_weight.
struct WeightGradient {
  std::vector<Number> of_key;
  Number mean;
};

WeightGradient weight_gradient(const Problem& p, const Row& row, const double* d_out, Gradient& g) {
  WeightGradient d{std::vector<Number>(static_cast<std::size_t>(p.keys)), {}};
  std::vector<double> outputs(static_cast<std::size_t>(p.value_depth));  // the sums of their terms' magnitudes
  for (std::int64_t j = 0; j < p.keys; ++j) {
    const auto n = static_cast<std::size_t>(j);
    const double kept = row.kept(j), w = row.weight[n];
    if (!row.seen[n] || kept == 0) continue;
    for (std::int64_t c = 0; c < p.value_depth; ++c) {
      const double term = d_out[c] * row.v(j)[c] * kept;
      add(d.of_key[n], term, magnitude(d_out[c]) * magnitude(row.v(j)[c]) * kept);
      outputs[static_cast<std::size_t>(c)] += row.most_of(w) * magnitude(row.v(j)[c]) * kept;
      const double of_value = w == 0 ? 0 : d_out[c] * w * kept;
      add(g.v[row.key_row(j) * static_cast<std::size_t>(p.value_depth) + static_cast<std::size_t>(c)], of_value,
          magnitude(d_out[c]) * kept * row.size_of(w) + row.vanishing() * kept);
    }
    d.of_key[n].size = in_range(d.of_key[n].size);
    add(d.mean, w == 0 ? 0 : w * d.of_key[n].value, row.most_of(w) * d.of_key[n].size);
  }
  // The output, in its own dtype, may stand for the values: mean = d_out · output. Past its range it is the largest.
  for (std::int64_t c = 0; c < p.value_depth; ++c) d.mean.size += magnitude(d_out[c]) * p.least / p.roundoff;
  const bool saturates = std::any_of(outputs.begin(), outputs.end(), [&](double x) { return x > p.most; });
  d.mean.size = saturates ? kBeyond : in_range(d.mean.size);
  return d;
}

// Adds the gradient of key j's score to those of q (whose row's numbers begin at `at`), k and the biases.
void add_score_gradient(const Problem& p, const Row& row, std::int64_t j, const Number& d_score, std::size_t at,
                        Gradient& g) {
  if (p.bias.defined()) add(g.bias[p.bias.place(row.b, row.h, row.i, j)], d_score.value, d_score.size);
  if (!p.relative.values.empty()) add(g.relative[row.relative_place(j)], d_score.value, d_score.size);
  // The error of a score also moves the slope of softcap and of a score function.
  const double slope = row.slope[static_cast<std::size_t>(j)];
  const double d_dot = d_score.value * slope * p.scale,
               size = d_score.size * std::fabs(p.scale) * (p.softcap > 0 || p.change ? std::fabs(slope) + 1 : 1);
  for (std::int64_t c = 0; c < p.depth; ++c) {
    const double k = row.k(j)[c], q = row.q()[c];
    const double unscaled = in_range(d_score.size * std::fmax(magnitude(k), magnitude(q)));
    add(g.q[at + static_cast<std::size_t>(c)], d_dot == 0 ? 0 : d_dot * k,
        unscaled == kBeyond ? kBeyond : size * magnitude(k) + row.vanishing());
    add(g.k[row.key_row(j) * static_cast<std::size_t>(p.depth) + static_cast<std::size_t>(c)],
        d_dot == 0 ? 0 : d_dot * q, unscaled == kBeyond ? kBeyond : size * magnitude(q) + row.vanishing());
  }
}

}  // namespace

Gradient gradient(const Problem& p, const std::vector<double>& d_output) {
  Gradient g;
  g.q.resize(p.q.size()), g.k.resize(p.k.size()), g.v.resize(p.v.size());
  g.bias.resize(p.bias.values.size()), g.sinks.resize(p.sinks.size()), g.relative.resize(p.relative.values.size());
  for_rows(p, [&](const Row& row) {
    const std::size_t at = count(row.b * p.query_heads + row.h, p.queries, 1, 1) + static_cast<std::size_t>(row.i);
    const double* d_out = d_output.data() + at * static_cast<std::size_t>(p.value_depth);
    if (row.is_uncertain(d_out) || (p.only_hidden_specials && row.is_touched(d_out))) {
      for (std::int64_t j = 0; j < p.keys; ++j) {
        if (row.allowed(j)) forget(row, j, g);
      }
      return;
    }
    const WeightGradient d_weight = weight_gradient(p, row, d_out, g);
    const Number& mean = d_weight.mean;
    if (!p.sinks.empty()) {
      add(g.sinks[static_cast<std::size_t>(row.h)], -row.sink_weight * mean.value,
          row.size_of(row.sink_weight) * mean.size);
    }
    for (std::int64_t j = 0; j < p.keys; ++j) {
      const auto n = static_cast<std::size_t>(j);
      if (!row.seen[n]) continue;
      const double w = row.weight[n];
      const Number d_score{w == 0 ? 0 : w * (d_weight.of_key[n].value - mean.value),
                           in_range(row.size_of(w) * (d_weight.of_key[n].size + mean.size))};
      add_score_gradient(p, row, j, d_score, at * static_cast<std::size_t>(p.depth), g);
    }
  });
  return g;
}

Grid philox_keep(const Problem& p, std::uint64_t key) {
  Grid keep{{p.batch, p.query_heads, p.queries, p.keys}, {}};
  const auto half = [](std::uint64_t x, int which) { return static_cast<std::uint32_t>(x >> (32 * which)); };
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.query_heads; ++h) {
      for (std::int64_t query = 0; query < p.queries; ++query) {
        for (std::int64_t key_place = 0; key_place < p.keys; ++key_place) {
          const std::int64_t i = p.query_number(b, query), j = p.key_number(b, key_place);
          std::uint32_t x[4] = {half(static_cast<std::uint64_t>(j / 4), 0), half(static_cast<std::uint64_t>(i), 0),
                                half(static_cast<std::uint64_t>(h), 0), half(static_cast<std::uint64_t>(b), 0)};
          std::uint32_t k0 = half(key, 0), k1 = half(key, 1);
          for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
            const std::uint64_t m0 = 0xD2511F53ull * x[0], m1 = 0xCD9E8D57ull * x[2];
            const std::uint32_t next[4] = {half(m1, 1) ^ x[1] ^ k0, half(m1, 0), half(m0, 1) ^ x[3] ^ k1, half(m0, 0)};
            std::copy(next, next + 4, x);
          }
          keep.values.push_back(static_cast<double>(x[j % 4]) >= std::floor(p.dropout * 0x1p32) ? 1 : 0);
        }
      }
    }
  }
  return keep;
}

}  // namespace oracle
