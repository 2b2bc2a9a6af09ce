#include "oracle/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace oracle {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
// What is past float32's range on the way is known to be large, and no more.
constexpr double kMost = 1e38, kBeyond = 1e200;
double in_range(double size) { return size > kMost ? kBeyond : size; }

// Of a factor, as rounding sees it: kernels may take what is below 2^-102 for zero.
double magnitude(double x) { return std::fabs(x) + 0x1p-100; }

void add(Number& to, double term, double size) { to.value += term, to.size += size; }

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
      x = p.change(capped[n], b, h, i, j);
      slope[n] *= p.change_slope ? p.change_slope(capped[n], b, h, i, j) : 1;
    }
    if (p.bias.defined()) x += p.bias.at(b, h, i, j), size += std::fabs(p.bias.at(b, h, i, j));
    if (!p.slopes.empty()) {
      const double distance = p.slopes[static_cast<std::size_t>(h)] * static_cast<double>(distance_to(j));
      x -= distance, size += std::fabs(distance);
    }
    score[n] = x;
    seen[n] = x != -kInf;
    if (seen[n]) strain = std::fmax(strain, size);
  }

  // |centre - j|, where the centre is the key at the query's own position in its sequence.
  std::int64_t distance_to(std::int64_t j) const;

  void compute_weights() {
    double most = p.sinks.empty() ? -kInf : p.sinks[static_cast<std::size_t>(h)];
    strain = most == -kInf ? strain : std::fmax(strain, std::fabs(most));
    for (const double x : score) most = std::isnan(x) ? x : std::fmax(most, x);
    if (most == -kInf) return;
    double sum = p.sinks.empty() ? 0 : std::exp(p.sinks[static_cast<std::size_t>(h)] - most);
    for (std::size_t j = 0; j < score.size(); ++j) sum += seen[j] ? std::exp(score[j] - most) : 0;
    lse = most + std::log(sum);
    for (std::size_t j = 0; j < score.size(); ++j) weight[j] = seen[j] ? std::exp(score[j] - most) / sum : 0;
    if (!p.sinks.empty()) sink_weight = std::exp(p.sinks[static_cast<std::size_t>(h)] - most) / sum;
  }

  // By which errors of this row's numbers are measured. Scores that are not even known to 1/64 tell nothing of weights.
  double size_of(double w) const {
    const double known = p.score_roundoff * strain < 1.0 / 64 ? magnitude(w) : 64;
    return known * (1 + strain * p.score_roundoff / p.roundoff);
  }

  // What dropout makes of a weight.
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
  return at;
}

std::int64_t Row::distance_to(std::int64_t j) const { return std::abs(place_of(p, b, i).centre - j); }

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
    r.lse.push_back({row.lse, (row.strain + std::fabs(row.lse)) * p.score_roundoff / p.roundoff + 1});
    std::vector<Number> out(static_cast<std::size_t>(p.value_depth));
    for (std::int64_t j = 0; j < p.keys; ++j) {
      const double w = row.weight[static_cast<std::size_t>(j)];
      const bool seen = row.seen[static_cast<std::size_t>(j)];
      r.weights.push_back({w, seen ? row.size_of(w) : 0});
      if (!seen || row.kept(j) == 0) continue;
      for (std::size_t c = 0; c < out.size(); ++c) {
        const double v = row.v(j)[c] * row.kept(j);
        add(out[c], w == 0 ? 0 : w * v, row.size_of(w) * magnitude(v));
      }
    }
    r.output.insert(r.output.end(), out.begin(), out.end());
  });
  return r;
}

Gradient gradient(const Problem& p, const std::vector<double>& d_output) {
  Gradient g;
  g.q.resize(p.q.size()), g.k.resize(p.k.size()), g.v.resize(p.v.size());
  g.bias.resize(p.bias.values.size()), g.sinks.resize(p.sinks.size());
  for_rows(p, [&](const Row& row) {
    const std::size_t at = count(row.b * p.query_heads + row.h, p.queries, 1, 1) + static_cast<std::size_t>(row.i);
    const double* d_out = d_output.data() + at * static_cast<std::size_t>(p.value_depth);
    // d_weight_j = d_out · v_j, dropped or not; mean = Σ weight · d_weight
    std::vector<Number> d_weight(static_cast<std::size_t>(p.keys));
    Number mean;
    for (std::int64_t j = 0; j < p.keys; ++j) {
      const auto n = static_cast<std::size_t>(j);
      const double kept = row.kept(j), w = row.weight[n];
      if (!row.seen[n] || kept == 0) continue;
      for (std::int64_t c = 0; c < p.value_depth; ++c) {
        const double term = d_out[c] * row.v(j)[c] * kept;
        add(d_weight[n], term, magnitude(d_out[c]) * magnitude(row.v(j)[c]) * kept);
        const double of_value = w == 0 ? 0 : d_out[c] * w * kept;
        add(g.v[row.key_row(j) * static_cast<std::size_t>(p.value_depth) + static_cast<std::size_t>(c)], of_value,
            magnitude(d_out[c]) * kept * row.size_of(w));
      }
      d_weight[n].size = in_range(d_weight[n].size);
      add(mean, w == 0 ? 0 : w * d_weight[n].value, magnitude(w) * d_weight[n].size);
    }
    // The output, in its own dtype, may stand for the values: mean = d_out · output.
    for (std::int64_t c = 0; c < p.value_depth; ++c) mean.size += magnitude(d_out[c]) * p.least / p.roundoff;
    mean.size = in_range(mean.size);
    const auto h = static_cast<std::size_t>(row.h);
    if (!p.sinks.empty()) {
      add(g.sinks[h], -row.sink_weight * mean.value, row.size_of(row.sink_weight) * mean.size);
    }
    for (std::int64_t j = 0; j < p.keys; ++j) {
      const auto n = static_cast<std::size_t>(j);
      if (!row.seen[n]) continue;
      const double w = row.weight[n];
      const Number d_score{w == 0 ? 0 : w * (d_weight[n].value - mean.value),
                           in_range(row.size_of(w) * (d_weight[n].size + mean.size))};
      if (p.bias.defined()) add(g.bias[p.bias.place(row.b, row.h, row.i, j)], d_score.value, d_score.size);
      // The error of a score also moves the slope of softcap and of a score function.
      const double d_dot = d_score.value * row.slope[n] * p.scale,
                   size = d_score.size * std::fabs(p.scale) *
                          (p.softcap > 0 || p.change ? std::fabs(row.slope[n]) + 1 : 1);
      for (std::int64_t c = 0; c < p.depth; ++c) {
        const double k = row.k(j)[c], q = row.q()[c];
        add(g.q[at * static_cast<std::size_t>(p.depth) + static_cast<std::size_t>(c)], d_dot == 0 ? 0 : d_dot * k,
            size * magnitude(k));
        add(g.k[row.key_row(j) * static_cast<std::size_t>(p.depth) + static_cast<std::size_t>(c)],
            d_dot == 0 ? 0 : d_dot * q, size * magnitude(q));
      }
    }
  });
  return g;
}

Grid philox_keep(const Problem& p, std::uint64_t key) {
  Grid keep{{p.batch, p.query_heads, p.queries, p.keys}, {}};
  const auto half = [](std::uint64_t x, int which) { return static_cast<std::uint32_t>(x >> (32 * which)); };
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.query_heads; ++h) {
      for (std::int64_t i = 0; i < p.queries; ++i) {
        for (std::int64_t j = 0; j < p.keys; ++j) {
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
