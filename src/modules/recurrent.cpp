// Projections, what they become before they meet the state, the rule, a norm, an output projection.
#include <algorithm>
#include <cmath>
#include <string>

#include "attn/recurrent_modules.hpp"
#include "attn/reference.hpp"
#include "core/rows.hpp"
#include "modules/recurrent_config.hpp"
#include "ops/dense.hpp"
#include "ops/input.hpp"
#include "ops/stored.hpp"
#include "ops/weights.hpp"

namespace attn {
namespace {

constexpr double kLeastSum = 1e-10;  // that linear attention divides by, added

Tensor ones_like(const Tensor& x) { return Tensor::ones(x.shape()); }

// f(i, from) of each number.
template <class F>
Tensor mapped(const Tensor& x, const F& f) {
  const Tensor in = x.contiguous(), y = Tensor::empty(x.shape());
  for_runs(in.numel(), 20, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) y.data<float>()[i] = f(i, in.data<float>()[i]);
  });
  return y;
}

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
float softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

Tensor elu_plus_one(const Tensor& x) {
  return mapped(x, [](std::int64_t, float v) { return v > 0 ? v + 1 : std::exp(v); });
}

// dy · φ'(x), φ' = 1 above 0 and φ below.
Tensor elu_plus_one_backward(const Tensor& dy, const Tensor& phi) {
  const float* of = phi.data<float>();
  return mapped(dy, [of](std::int64_t i, float d) { return d * std::min(of[i], 1.f); });
}

// (b, h, t, d) → (b, t, h · d)
Tensor merged(const Tensor& heads) {
  return heads.transpose(1, 2).contiguous().view({heads.size(0), heads.size(2), heads.size(1) * heads.size(3)});
}

Tensor with_ones(const Tensor& v) {
  const std::vector<Tensor> both{v.contiguous(), Tensor::ones({v.size(0), v.size(1), v.size(2), 1})};
  return concat_last(both);
}

// Divides each row (…, d + 1) by its last number.
Tensor divided(const Tensor& rows, Tensor* sums = nullptr) {
  const std::int64_t d = rows.size(-1) - 1, count = row_count(rows);
  Shape shape = rows.shape();
  shape[shape.size() - 1] = d;
  const Tensor y = Tensor::empty(shape), sum = Tensor::empty({count});
  for (std::int64_t r = 0; r < count; ++r) {
    const float* from = rows.data<float>() + r * (d + 1);
    sum.data<float>()[r] = from[d] + static_cast<float>(kLeastSum);
    for (std::int64_t i = 0; i < d; ++i) y.data<float>()[r * d + i] = from[i] / sum.data<float>()[r];
  }
  if (sums) *sums = sum;
  return y;
}

// y = n / z, z the last number of a row: dn = dy / z, dz = −Σ dn · y.
Tensor divided_backward(const Tensor& dy, const Tensor& y, const Tensor& sums) {
  const std::int64_t d = y.size(-1), count = row_count(y);
  Shape shape = y.shape();
  shape[shape.size() - 1] = d + 1;
  const Tensor g = dy.contiguous(), dx = Tensor::empty(shape);
  for (std::int64_t r = 0; r < count; ++r) {
    float *to = dx.data<float>() + r * (d + 1), of_sum = 0;
    for (std::int64_t i = 0; i < d; ++i) {
      to[i] = g.data<float>()[r * d + i] / sums.data<float>()[r];
      of_sum -= to[i] * y.data<float>()[r * d + i];
    }
    to[d] = of_sum;
  }
  return dx;
}

// Evenly from low to high: heads that are not drawn are not alike either.
Tensor spread(std::int64_t n, double low, double high) {
  Tensor all = Tensor::empty({n});
  for (std::int64_t i = 0; i < n; ++i)
    all.set({i}, low + (high - low) * (static_cast<double>(i) + 0.5) / static_cast<double>(n));
  return all;
}

Tensor identity(std::int64_t batch, std::int64_t heads, std::int64_t n) {
  Tensor one = Tensor::zeros({n, n});
  for (std::int64_t i = 0; i < n; ++i) one.set({i, i}, 1);
  return one.unsqueeze(0).unsqueeze(0).expand({batch, heads, n, n});
}

}  // namespace

struct RecurrentLayer::Saved {
  Tensor x;                    // (b, t, d_in)
  Tensor raw_q, raw_k, raw_v;  // (b, t, heads · d) as projected
  Tensor active_q, active_k;   // before they get length 1
  Tensor q, k, v;              // as the state meets them
  Tensor alpha, beta_in;       // (b, t, heads), before their functions
  LinearAttentionOptions options;
  Tensor sums, context;             // (b, heads, t, d)
  Tensor gate, rows, joined_heads;  // (b, t, heads · d), and as rows of a head
  Tensor state, window;             // after the last token
};

RecurrentLayer::RecurrentLayer(Kind kind, const ModuleConfig& config, Generator& rng, std::int64_t convolution,
                               std::string_view prefix)
    : RecurrentLayer(kind, checked_recurrent(kind, config, convolution),
                     sizes_of(checked_recurrent(kind, config, convolution), convolution), rng, prefix, {}) {}

RecurrentLayer::RecurrentLayer(const ModuleConfig& config, const GatedDeltaConfig& sizes, Generator& rng,
                               std::string_view prefix, const RecurrentNames& names)
    : RecurrentLayer(Kind::gated_delta, checked_recurrent(config, sizes), sizes, rng, prefix, names) {}

RecurrentLayer::RecurrentLayer(Kind kind, const ModuleConfig& checked, const GatedDeltaConfig& sizes, Generator& rng,
                               std::string_view prefix, const RecurrentNames& names)
    : kind_(kind), config_(checked), sizes_(sizes) {
  const ModuleConfig& c = config_;
  const auto named = [&](std::string_view name) { return std::string(prefix).append(name); };
  const auto layer = [&](std::int64_t d_in, std::int64_t d_out, bool bias, std::string_view name) {
    auto made = c.initialise ? std::make_unique<Linear>(d_in, d_out, bias, rng, named(name))
                             : std::make_unique<Linear>(d_in, d_out, bias, named(name));
    made->precision = c.precision;
    return made;
  };
  const std::int64_t keys = sizes.keys(), values = sizes.values(), heads = sizes.value_heads;
  const bool key_first = c.layer_order == LayerOrder::kqv;
  if (!key_first) query_ = layer(c.d_in, keys, c.qkv_bias, names.query);
  key_ = layer(c.d_in, keys, c.qkv_bias, names.key);
  if (key_first) query_ = layer(c.d_in, keys, c.qkv_bias, names.query);
  value_ = layer(c.d_in, values, c.qkv_bias, names.value);
  if (kind != Kind::linear) beta_ = layer(c.d_in, heads, false, names.beta);
  if (kind == Kind::gated_delta) {
    alpha_ = layer(c.d_in, heads, false, names.alpha);
    gate_ = layer(c.d_in, values, false, names.gate);
    const Tensor a = c.initialise ? rng.uniform({heads}, 1, 16) : spread(heads, 1, 16);
    a_log_ = {named("A_log"), mapped(a, [](std::int64_t, float x) { return std::log(x); }), {}};
    const double shortest = std::log(0.001), longest = std::log(0.1);
    const Tensor step = c.initialise ? rng.uniform({heads}, shortest, longest) : spread(heads, shortest, longest);
    // softplus(dt_bias) is the step.
    dt_bias_ = {
        named("dt_bias"), mapped(step, [](std::int64_t, float x) { return std::log(std::expm1(std::exp(x))); }), {}};
    gated_norm_ = std::make_unique<GatedNorm>(sizes.value_dim, c.epsilon, named(names.norm));
  } else if (kind == Kind::delta) {
    norm_ = std::make_unique<Norm>(NormForm::rms, sizes.value_dim, c.epsilon, named(names.norm));
  }
  if (sizes.convolution > 0) {
    const std::int64_t rows = sizes.channels(), taps = sizes.convolution;
    const double bound = 1 / std::sqrt(static_cast<double>(taps));
    const Shape shape = names.as_conv1d ? Shape{rows, 1, taps} : Shape{rows, taps};
    conv_ = {named(names.convolution) + ".weight",
             c.initialise ? rng.uniform(shape, -bound, bound) : Tensor::zeros(shape),
             {}};
    for (std::int64_t row = 0; row < rows && !c.initialise; ++row)  // each token itself
      conv_.value.data<float>()[(row + 1) * taps - 1] = 1;
  }
  if (c.out_proj) out_ = layer(values, c.d_out, c.out_bias, names.out);
}

std::vector<Parameter*> RecurrentLayer::parameters() {
  std::vector<Parameter*> all =
      parameters_of({query_.get(), key_.get(), value_.get(), beta_.get(), alpha_.get(), gate_.get()});
  if (kind_ == Kind::gated_delta) all.insert(all.end(), {&a_log_, &dt_bias_});
  if (sizes_.convolution > 0) all.push_back(&conv_);
  if (norm_) all.push_back(&norm_->weight);
  if (gated_norm_) all.push_back(&gated_norm_->norm.weight);
  for (Parameter* p : parameters_of({out_.get()})) all.push_back(p);
  return all;
}

RecurrentCacheConfig RecurrentLayer::cache_config(std::int64_t batch, DType dtype) const {
  return {.batch = batch,
          .heads = sizes_.value_heads,
          .key_dim = sizes_.key_dim,
          .value_dim = kind_ == Kind::linear ? sizes_.value_dim + 1 : sizes_.value_dim,
          .channels = sizes_.convolution > 0 ? sizes_.channels() : 0,
          .taps = std::max<std::int64_t>(sizes_.convolution, 1),
          .dtype = dtype};
}

Tensor RecurrentLayer::key_heads(const Tensor& x) const {
  return x.view({x.size(0), x.size(1), sizes_.key_heads, sizes_.key_dim}).transpose(1, 2);
}

Tensor RecurrentLayer::value_heads(const Tensor& x) const {
  return x.view({x.size(0), x.size(1), sizes_.value_heads, sizes_.value_dim}).transpose(1, 2);
}

// (channels, taps) in float32
Tensor RecurrentLayer::kernel() const {
  return rows_of(conv_, 0, sizes_.channels()).view({sizes_.channels(), sizes_.convolution});
}

// raw_q, raw_k, raw_v become q, k, v.
void RecurrentLayer::map(Saved& s, const Tensor& window) {
  if (kind_ == Kind::linear) {
    s.active_q = elu_plus_one(s.raw_q), s.active_k = elu_plus_one(s.raw_k);
    s.q = key_heads(s.active_q), s.k = key_heads(s.active_k), s.v = with_ones(value_heads(s.raw_v));
    return;
  }
  Tensor v = s.raw_v;
  if (sizes_.convolution > 0) {
    const Tensor weight = kernel();
    const auto convolved = [&](const Tensor& x, std::int64_t first) {
      const std::int64_t last = first + x.size(2);
      const auto done = causal_convolution(
          x, weight.slice(0, first, last),
          {.silu = true, .initial_state = window.defined() ? window.slice(1, first, last) : window, .starts = starts_});
      if (first == 0) s.window = Tensor::empty({done.state.size(0), sizes_.channels(), done.state.size(2)});
      s.window.slice(1, first, last).copy_from(done.state);
      return done.output;
    };
    const std::int64_t w = sizes_.keys();
    s.active_q = convolved(s.raw_q, 0), s.active_k = convolved(s.raw_k, w), v = convolved(s.raw_v, 2 * w);
  } else {
    s.active_q = gated(s.raw_q, ones_like(s.raw_q), Activation::silu);
    s.active_k = gated(s.raw_k, ones_like(s.raw_k), Activation::silu);
  }
  const auto unit = [&](const Tensor& x) { return key_heads(l2_norm(x.view({-1, sizes_.key_dim})).view(x.shape())); };
  s.q = unit(s.active_q), s.k = unit(s.active_k), s.v = value_heads(v);
}

// decay = −exp(A_log) · softplus(W_alpha · x + dt_bias), beta = σ(W_beta · x), or twice that
void RecurrentLayer::set_gates(Saved& s) {
  if (kind_ == Kind::linear) return;
  const std::int64_t h = sizes_.value_heads;
  const float most = sizes_.doubled_beta ? 2 : 1;
  s.beta_in = linear(*beta_, s.x, DType::f32);
  s.options.rule = StateRule::delta;
  s.options.beta = mapped(s.beta_in, [most](std::int64_t, float x) { return most * sigmoid(x); }).transpose(1, 2);
  if (kind_ == Kind::delta) return;
  s.alpha = linear(*alpha_, s.x, DType::f32);
  const Tensor rates = numbers_of(kRecurrentOp, a_log_, h), steps = numbers_of(kRecurrentOp, dt_bias_, h);
  const float *a = rates.data<float>(), *bias = steps.data<float>();
  s.options.decay = mapped(s.alpha, [=](std::int64_t i, float x) {
                      return -std::exp(a[i % h]) * softplus(x + bias[i % h]);
                    }).transpose(1, 2);
}

// The effective weights: the rule is linear in the values, so that they are what it makes of the unit vectors.
Tensor RecurrentLayer::weights(const Saved& s) const {
  const Tensor units = identity(s.x.size(0), sizes_.value_heads, s.x.size(1));
  if (units.numel() == 0) return units;
  const bool linear = kind_ == Kind::linear;
  const Tensor all = linear_attention(s.q, s.k, linear ? with_ones(units) : units, s.options).output;
  return linear ? divided(all) : all;
}

// x (b, t, d_in) → (b, t, d_out); `steps` takes steps of (b, heads, t, …)
Tensor RecurrentLayer::run(const Tensor& x, Saved& s, const Tensor& state, const Tensor& window, Trace* steps) {
  const bool is_linear = kind_ == Kind::linear;
  s.x = x;
  s.raw_q = linear(*query_, x, DType::f32), s.raw_k = linear(*key_, x, DType::f32);
  s.raw_v = linear(*value_, x, DType::f32);
  if (steps) {
    s.raw_q = merged(steps->pass("queries", key_heads(s.raw_q)));
    s.raw_k = merged(steps->pass("keys", key_heads(s.raw_k)));
    s.raw_v = merged(steps->pass("values", value_heads(s.raw_v)));
  }
  map(s, window);
  set_gates(s);
  if (steps) {
    s.q = steps->pass("mapped queries", s.q), s.k = steps->pass("mapped keys", s.k);
    for (const auto& [name, gate] : {std::pair{"beta", &s.options.beta}, {"decay", &s.options.decay}})
      if (gate->defined()) *gate = steps->pass(name, gate->unsqueeze(3)).select(3, 0);
  }
  if (is_linear) s.options.scale = 1;
  s.options.initial_state = state, s.options.starts = starts_;
  const LinearAttentionResult r = linear_attention(s.q, s.k, s.v, s.options);
  s.state = r.state;
  s.context = is_linear ? divided(r.output, &s.sums) : r.output;
  if (steps && steps->watches("weights")) {
    const Tensor found = weights(s), given = steps->pass("weights", found);
    if (given.raw() != found.raw()) s.context = reference::weighted_sum(given, is_linear ? value_heads(s.raw_v) : s.v);
  }
  s.context = pass(steps, "context", s.context);
  s.joined_heads = merged(s.context);
  const Shape rows{-1, sizes_.value_dim};
  s.rows = s.joined_heads.view(rows);
  if (norm_) {
    s.joined_heads = norm_->forward(s.rows, DType::f32).view(s.joined_heads.shape());
  } else if (gated_norm_) {
    s.gate = linear(*gate_, x, DType::f32);
    s.joined_heads = gated_norm_->forward(s.rows, s.gate.view(rows)).view(s.joined_heads.shape());
  }
  if (steps && !is_linear) s.joined_heads = merged(steps->pass("normed", value_heads(s.joined_heads)));
  return s.joined_heads;
}

Tensor RecurrentLayer::projected_out(const Tensor& joined) const {
  return out_ ? linear(*out_, joined, DType::f32) : joined;
}

Tensor RecurrentLayer::forward(const Tensor& given, Trace* trace) {
  require_whole(kRecurrentOp, query_ != nullptr);
  require_input(kRecurrentOp, "x", given, config_.d_in, stored(config_.precision));
  require_context(kRecurrentOp, config_.context_length, given.size(-2), 0);
  saved_.reset();
  const bool unbatched = given.rank() == 2;
  const auto batched = [unbatched](const Tensor& t) { return (unbatched ? t.unsqueeze(0) : t).contiguous(); };
  const auto shown = [unbatched](const Tensor& t) { return unbatched ? t.select(0, 0) : t; };
  const auto s = std::make_shared<Saved>();
  const Tensor x = batched(pass(trace, "inputs", given));
  Trace steps = trace ? steps_within(*trace, unbatched, sizes_.value_heads == 1) : Trace{};
  s->joined_heads = run(x, *s, {}, {}, trace ? &steps : nullptr);
  if (sizes_.value_heads > 1) s->joined_heads = batched(pass(trace, "merged", shown(s->joined_heads)));
  Tensor z = shown(projected_out(s->joined_heads));
  if (out_) z = pass(trace, "output", z);
  if (grad_enabled() && !(trace && trace->edits())) saved_ = s;
  return z;
}

Tensor RecurrentLayer::forward(const Tensor& x, RecurrentCache& cache, std::optional<std::int64_t> item) {
  require_whole(kRecurrentOp, query_ != nullptr);
  require_input(kRecurrentOp, "x", x, config_.d_in, stored(config_.precision));
  const std::int64_t batch = item ? 1 : cache.config().batch;
  if (x.rank() != 3 || x.size(0) != batch)
    throw Error(Error::Kind::shape, kRecurrentOp, "x (" + std::to_string(batch) + ", tokens, d_in)", x.shape().str());
  require_context(kRecurrentOp, config_.context_length, x.size(1), item ? cache.length(*item) : cache.max_length());
  Saved s;
  const Tensor before = sizes_.convolution > 0 ? cache.window(item) : Tensor{};
  const Tensor z = projected_out(run(x.contiguous(), s, cache.state(item), before, nullptr));
  cache.update(s.state, s.window.defined() ? s.window : Tensor::empty({batch, 0, 0}), x.size(1), item);
  return z;
}

// Goes back from q, k and v to the x that they are made of, and adds the gradient of x to dx.
Tensor RecurrentLayer::map_backward(Saved& s, const Tensor& dq, const Tensor& dk, const Tensor& dv, Tensor dx) {
  Tensor d_q = merged(dq), d_k = merged(dk), d_v = merged(dv);
  if (kind_ == Kind::linear) {
    d_q = elu_plus_one_backward(d_q, s.active_q), d_k = elu_plus_one_backward(d_k, s.active_k);
  } else {
    // q, k = l2_norm(active)
    const Shape rows{-1, sizes_.key_dim};
    const auto unit_back = [&](const Tensor& d, const Tensor& x) {
      return l2_norm_backward(d.view(rows), x.view(rows)).view(x.shape());
    };
    d_q = unit_back(d_q, s.active_q), d_k = unit_back(d_k, s.active_k);
    if (sizes_.convolution > 0) {
      const Tensor weight = kernel(), d_weight = Tensor::empty(weight.shape());
      const auto convolved_back = [&](const Tensor& d, const Tensor& x, std::int64_t first) {
        const std::int64_t last = first + x.size(2);
        const auto g = causal_convolution_backward(d, {}, x, weight.slice(0, first, last),
                                                   {.silu = true, .starts = s.options.starts});
        d_weight.slice(0, first, last).copy_from(g.weight);
        return g.x;
      };
      const std::int64_t w = sizes_.keys();
      d_q = convolved_back(d_q, s.raw_q, 0), d_k = convolved_back(d_k, s.raw_k, w);
      d_v = convolved_back(d_v, s.raw_v, 2 * w);
      accumulate(conv_, d_weight.view(conv_.value.shape()));
    } else {
      d_q = gated_backward(d_q, s.raw_q, ones_like(s.raw_q), Activation::silu).gate;
      d_k = gated_backward(d_k, s.raw_k, ones_like(s.raw_k), Activation::silu).gate;
    }
  }
  dx = linear_backward(*query_, d_q, s.x, DType::f32, dx);
  dx = linear_backward(*key_, d_k, s.x, DType::f32, dx);
  return linear_backward(*value_, d_v, s.x, DType::f32, dx);
}

Tensor RecurrentLayer::gates_backward(const Saved& s, const Tensor& d_decay, const Tensor& d_beta, Tensor dx) {
  const std::int64_t h = sizes_.value_heads;
  // beta = most · σ(W_beta · x)
  const float *in = s.beta_in.data<float>(), most = sizes_.doubled_beta ? 2 : 1;
  const Tensor d_in = mapped(d_beta.transpose(1, 2), [in, most](std::int64_t i, float d) {
    const float open = sigmoid(in[i]);
    return d * most * open * (1 - open);
  });
  dx = linear_backward(*beta_, d_in, s.x, DType::f32, dx);
  if (kind_ == Kind::delta) return dx;
  // decay = −exp(A_log) · softplus(alpha + dt_bias)
  const Tensor d = d_decay.transpose(1, 2).contiguous(), d_alpha = Tensor::empty(s.alpha.shape());
  const Tensor d_a = Tensor::zeros({h}), d_bias = Tensor::zeros({h});
  const Tensor rates = numbers_of(kRecurrentOp, a_log_, h), steps = numbers_of(kRecurrentOp, dt_bias_, h);
  for (std::int64_t i = 0; i < d.numel(); ++i) {
    const std::int64_t head = i % h;
    const float rate = std::exp(rates.data<float>()[head]), g = d.data<float>()[i];
    const float from = s.alpha.data<float>()[i] + steps.data<float>()[head];
    d_alpha.data<float>()[i] = -g * rate * sigmoid(from);
    d_a.data<float>()[head] -= g * rate * softplus(from);
    d_bias.data<float>()[head] += d_alpha.data<float>()[i];
  }
  accumulate(a_log_, d_a), accumulate(dt_bias_, d_bias);
  return linear_backward(*alpha_, d_alpha, s.x, DType::f32, dx);
}

Module::Gradient RecurrentLayer::backward(const Tensor& dz) {
  require_forward(kRecurrentOp, saved_ != nullptr);
  Saved& s = *saved_;
  const Tensor dz3 = dz.rank() == 3 ? dz : dz.unsqueeze(0);
  require_gradient(kRecurrentOp, dz3, {s.x.size(0), s.x.size(1), out_ ? config_.d_out : sizes_.values()});
  // z = out_proj(joined_heads)
  Tensor d_merged = out_ ? linear_backward(*out_, dz3, s.joined_heads, DType::f32) : dz3.contiguous(), dx;
  const Shape rows{-1, sizes_.value_dim}, joined = s.joined_heads.shape();
  if (norm_) {
    d_merged = norm_->backward(d_merged.view(rows), {}).view(joined);
  } else if (gated_norm_) {
    const GatedNorm::Gradient g = gated_norm_->backward(d_merged.view(rows));
    d_merged = g.x.view(joined);
    dx = linear_backward(*gate_, g.gate.view(joined), s.x, DType::f32);
  }
  Tensor d_context = value_heads(d_merged);
  if (kind_ == Kind::linear) d_context = divided_backward(d_context, s.context, s.sums);
  const LinearAttentionGradient g = linear_attention_backward(d_context, {}, s.q, s.k, s.v, s.options);
  if (kind_ != Kind::linear) dx = gates_backward(s, g.decay, g.beta, dx);
  dx = map_backward(s, g.q, g.k, kind_ == Kind::linear ? g.v.slice(3, 0, sizes_.value_dim) : g.v, dx);
  return {dz.rank() == 3 ? dx : dx.select(0, 0), {}};
}

}  // namespace attn
