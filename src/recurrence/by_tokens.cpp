#include "recurrence/by_tokens.hpp"

#include <cmath>
#include <vector>

namespace attn::recurrence {
namespace {

using Numbers = std::vector<double>;

double kept(const Head& h, std::int64_t t, std::int64_t d) {
  if (!h.decay) return 1;
  return std::exp(h.by_channel ? h.decay[t * h.d_k + d] : h.decay[t]);
}

double strength(const Head& h, std::int64_t t) { return h.beta ? h.beta[t] : 1; }

Numbers initial(const Head& h) {
  const auto size = static_cast<std::size_t>(h.d_k * h.d_v);
  return h.initial ? Numbers(h.initial, h.initial + size) : Numbers(size, 0);
}

// S ← exp(decay) S
void decay(const Head& h, std::int64_t t, double* s) {
  for (std::int64_t d = 0; d < h.d_k; ++d) {
    for (std::int64_t c = 0; c < h.d_v; ++c) s[d * h.d_v + c] *= kept(h, t, d);
  }
}

// sᵀ x
double column_sum(const Head& h, const double* s, const double* x, std::int64_t c) {
  double sum = 0;
  for (std::int64_t d = 0; d < h.d_k; ++d) sum += s[d * h.d_v + c] * x[d];
  return sum;
}

// δ = beta (v − Sᵀ k), or v, for a decayed state
Numbers written(const Head& h, std::int64_t t, const double* s) {
  Numbers delta(h.v + t * h.d_v, h.v + (t + 1) * h.d_v);
  for (std::int64_t c = 0; h.delta && c < h.d_v; ++c) {
    auto& at = delta[static_cast<std::size_t>(c)];
    at = strength(h, t) * (at - column_sum(h, s, h.k + t * h.d_k, c));
  }
  return delta;
}

// S ← S + k δᵀ
void write(const Head& h, std::int64_t t, const Numbers& delta, double* s) {
  for (std::int64_t d = 0; d < h.d_k; ++d) {
    for (std::int64_t c = 0; c < h.d_v; ++c)
      s[d * h.d_v + c] += h.k[t * h.d_k + d] * delta[static_cast<std::size_t>(c)];
  }
}

// Holds the state after the decay of token t, δ that t writes into it, and the state after that.
struct Step {
  Numbers decayed, delta, after;
};

// The gradients of one token; `g` is that of the state after it, and becomes that of the state before.
void token_backward(const Head& h, std::int64_t t, const Step& step, const HeadGradient& to, double* g) {
  const double *q = h.q + t * h.d_k, *k = h.k + t * h.d_k, *v = h.v + t * h.d_v, *d_o = to.d_output + t * h.d_v;
  const auto at = [&](const Numbers& s, std::int64_t d, std::int64_t c) {
    return s[static_cast<std::size_t>(d * h.d_v + c)];
  };
  // o = scale · Sᵀ q
  for (std::int64_t d = 0; d < h.d_k; ++d) {
    for (std::int64_t c = 0; c < h.d_v; ++c) {
      to.dq[t * h.d_k + d] += h.scale * at(step.after, d, c) * d_o[c];
      g[d * h.d_v + c] += h.scale * q[d] * d_o[c];
    }
  }
  // S ← S + k δᵀ, δ = beta (v − Sᵀ k)
  const double beta = strength(h, t);
  Numbers e(static_cast<std::size_t>(h.d_v));
  for (std::int64_t c = 0; c < h.d_v; ++c) {
    const double ec = e[static_cast<std::size_t>(c)] = column_sum(h, g, k, c);
    to.dv[t * h.d_v + c] += beta * ec;
    if (to.d_beta) to.d_beta[t] += ec * (v[c] - column_sum(h, step.decayed.data(), k, c));
  }
  for (std::int64_t d = 0; d < h.d_k; ++d) {
    for (std::int64_t c = 0; c < h.d_v; ++c) {
      const auto i = static_cast<std::size_t>(c);
      to.dk[t * h.d_k + d] += g[d * h.d_v + c] * step.delta[i];
      if (h.delta) to.dk[t * h.d_k + d] -= beta * at(step.decayed, d, c) * e[i];
    }
  }
  // S ← exp(decay) S
  for (std::int64_t d = 0; d < h.d_k; ++d) {
    for (std::int64_t c = 0; c < h.d_v; ++c) {
      double& gs = g[d * h.d_v + c];
      if (h.delta) gs -= beta * k[d] * e[static_cast<std::size_t>(c)];
      if (to.d_decay) to.d_decay[h.by_channel ? t * h.d_k + d : t] += gs * at(step.decayed, d, c);
      gs *= kept(h, t, d);
    }
  }
}

}  // namespace

void forward_by_tokens(const Head& h, double* output, double* state) {
  Numbers s = initial(h);
  for (std::int64_t t = 0; t < h.tokens; ++t) {
    decay(h, t, s.data());
    write(h, t, written(h, t, s.data()), s.data());
    for (std::int64_t c = 0; c < h.d_v; ++c)
      output[t * h.d_v + c] = h.scale * column_sum(h, s.data(), h.q + t * h.d_k, c);
  }
  if (state) std::copy(s.begin(), s.end(), state);
}

void backward_by_tokens(const Head& h, const HeadGradient& gradient) {
  std::vector<Step> steps;
  Numbers s = initial(h);
  for (std::int64_t t = 0; t < h.tokens; ++t) {
    decay(h, t, s.data());
    Step step{s, written(h, t, s.data()), {}};
    write(h, t, step.delta, s.data());
    step.after = s;
    steps.push_back(std::move(step));
  }
  Numbers g(s.size(), 0);
  if (gradient.d_state) g.assign(gradient.d_state, gradient.d_state + s.size());
  for (std::int64_t t = h.tokens - 1; t >= 0; --t)
    token_backward(h, t, steps[static_cast<std::size_t>(t)], gradient, g.data());
  for (std::size_t i = 0; gradient.d_initial && i < g.size(); ++i) gradient.d_initial[i] += g[i];
}

}  // namespace attn::recurrence
