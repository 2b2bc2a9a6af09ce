// Projections by a latent, expanded to heads or absorbed by the queries, around the operator.
#include "attn/latent_attention.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "attn/reference.hpp"
#include "core/decimal.hpp"
#include "core/rows.hpp"
#include "ops/dense.hpp"
#include "ops/input.hpp"
#include "ops/sequence.hpp"
#include "ops/stored.hpp"

namespace attn {
namespace {

namespace ref = reference;

constexpr const char* kLatent = "LatentAttention";

void require(bool fits, const char* expected, const std::string& found) {
  if (!fits) throw Error(Error::Kind::argument, kLatent, expected, found);
}

ModuleConfig checked(ModuleConfig c, const LatentSizes& s) {
  constexpr std::int64_t most = 1 << 30;  // as attention() has it
  for (const auto& [what, size] : {std::pair{"d_in", c.d_in},
                                   {"d_out", c.d_out},
                                   {"num_heads", c.num_heads},
                                   {"latent", s.latent},
                                   {"plain", s.plain},
                                   {"rotary + 1", s.rotary + 1},
                                   {"value", s.value},
                                   {"query + 1", s.query + 1}}) {
    require_positive(kLatent, what, size);
    require(size < most, "sizes below 2^30", std::string(what) + " = " + std::to_string(size));
  }
  require(c.context_length >= 0, "context_length >= 0 (0 = any)", std::to_string(c.context_length));
  require(c.dropout >= 0 && c.dropout <= 1, "dropout in [0, 1]", shortest_decimal(c.dropout));
  require(c.kv_heads == 0 || c.kv_heads == c.num_heads, "as many key heads as heads", std::to_string(c.kv_heads));
  require(c.head_dim == 0 || c.head_dim == s.key(), "head_dim = plain + rotary, or 0", std::to_string(c.head_dim));
  const bool others = c.window != 0 || c.softcap != 0 || c.sinks || c.output_gate || !c.out_proj ||
                      c.query_key_norm != QueryKeyNorm::none || c.norm != NormForm::rms;
  require(!others, "an out_proj, RMSNorm, and no window, softcap, sinks, output_gate or query_key_norm", "one of them");
  require(!c.layer_order, "no layer_order: weights are drawn in the order of Hugging Face's", "one");
  const std::int64_t turning = c.rope ? 2 * std::ssize(c.rope->inv_freq) : s.rotary;
  require(turning == s.rotary, "a rope of rotary numbers",
          std::to_string(turning) + " for " + std::to_string(s.rotary));
  require(c.latents == LatentSizes{} || c.latents == s, "latents as the sizes, or none", "others");
  if (c.scale) require_finite(kLatent, "scale", *c.scale);
  c.kv_heads = c.num_heads, c.head_dim = s.key(), c.latents = s;
  return c;
}

Tensor in_batch(const Tensor& x) { return (x.rank() == 3 ? x : x.unsqueeze(0)).contiguous(); }

Tensor last(const Tensor& x, std::int64_t begin, std::int64_t end) { return x.slice(-1, begin, end); }

// a and b side by side, in `dtype`; b (b, 1, t, n) may be one for all heads.
Tensor joined(const Tensor& a, const Tensor& b, DType dtype) {
  Shape shape = a.shape(), right = a.shape();
  right.back() = b.shape().back(), shape.back() += right.back();
  const Tensor all = Tensor::empty(shape, dtype);
  last(all, 0, a.size(-1)).copy_from(a);
  last(all, a.size(-1), shape.back()).copy_from(b.expand(right));
  return all;
}

// In x's own memory.
void turn(const Tensor& x, const RotaryTable& turns) {
  if (turns.cos.defined() && x.numel() > 0) rotary_in_place(x, turns);
}

Tensor turned_back(const Tensor& dy, const RotaryTable& turns) {
  return turns.cos.defined() && dy.numel() > 0 ? rotary_backward(dy, turns) : dy;
}

// (b, h, t, d) → (b, 1, t, d) of float32, contiguous
Tensor sum_of_heads(const Tensor& x) {
  const Tensor sum = Tensor::zeros({x.size(0), 1, x.size(2), x.size(3)});
  for (std::int64_t h = 0; h < x.size(1); ++h) add_in_place(sum, x.slice(1, h, h + 1).to(DType::f32).contiguous());
  return sum;
}

}  // namespace

struct LatentAttention::Saved {
  Tensor x, low, latents;  // (b, t, …): what went in, the queries' latent and that of keys and values
  Heads heads;
  RotaryTable turns;
  AttentionOptions options;
  AttentionResult attention;
  Tensor merged;  // (b, t, heads · value)
};

LatentAttention::LatentAttention(const ModuleConfig& config, const LatentSizes& sizes, Generator& rng,
                                 std::string_view prefix)
    : config_(checked(config, sizes)), sizes_(sizes), rng_(rng) {
  const ModuleConfig& c = config_;
  const auto named = [&](const char* name) { return std::string(prefix) + name; };
  const auto layer = [&](std::int64_t d_in, std::int64_t d_out, bool bias, const char* name) {
    auto made = c.initialise ? std::make_unique<Linear>(d_in, d_out, bias, rng, named(name))
                             : std::make_unique<Linear>(d_in, d_out, bias, named(name));
    made->precision = c.precision;
    return made;
  };
  const auto norm = [&](std::int64_t width, const char* name) {
    return std::make_unique<Norm>(NormForm::rms, width, c.epsilon, named(name));
  };
  if (sizes.query > 0) {
    query_down_ = layer(c.d_in, sizes.query, c.qkv_bias, "q_a_proj");
    query_norm_ = norm(sizes.query, "q_a_layernorm");
    query_up_ = layer(sizes.query, c.num_heads * sizes.key(), false, "q_b_proj");
  } else {
    query_up_ = layer(c.d_in, c.num_heads * sizes.key(), false, "q_proj");
  }
  down_ = layer(c.d_in, sizes.cached(), c.qkv_bias, "kv_a_proj_with_mqa");
  norm_ = norm(sizes.latent, "kv_a_layernorm");
  up_ = layer(sizes.latent, c.num_heads * (sizes.plain + sizes.value), false, "kv_b_proj");
  out_ = layer(c.num_heads * sizes.value, c.d_out, c.out_bias, "o_proj");
}

LatentSizes latent_sizes(const ModuleConfig& config) {
  LatentSizes s = config.latents;
  if (s.plain == 0 || s.value == 0) {
    require(config.num_heads > 0 && config.d_out % config.num_heads == 0, "d_out divisible by num_heads",
            "d_out = " + std::to_string(config.d_out) + ", num_heads = " + std::to_string(config.num_heads));
    for (std::int64_t* part : {&s.plain, &s.value})
      if (*part == 0) *part = config.d_out / config.num_heads;
  }
  if (s.latent == 0) s.latent = std::max<std::int64_t>(config.d_out / 2, 2);
  if (s.rotary == 0 && config.rope) s.rotary = 2 * std::ssize(config.rope->inv_freq);
  return s;
}

std::unique_ptr<LatentAttention> make_latent_attention(const ModuleConfig& config, const LatentSizes& sizes,
                                                       Generator& rng, std::string_view prefix) {
  ModuleConfig c = config;
  c.latents = sizes, c.latents = latent_sizes(c);
  return std::make_unique<LatentAttention>(c, c.latents, rng, prefix);
}

std::vector<Parameter*> LatentAttention::parameters() {
  return parameters_of(
      {query_down_.get(), query_norm_.get(), query_up_.get(), down_.get(), norm_.get(), up_.get(), out_.get()});
}

KVCacheConfig LatentAttention::cache_config(std::int64_t batch, DType dtype) const {
  return {.batch = batch,
          .kv_heads = 1,
          .head_dim = sizes_.cached(),
          .value_dim = sizes_.latent,
          .dtype = dtype,
          .values_in_keys = true};
}

AttentionOptions LatentAttention::options(Align align) const {
  AttentionOptions options;
  if (config_.causal) options.mask = Mask::causal(align);
  if (starts_.defined()) options.mask = options.mask & Mask::sequences(starts_, starts_);
  options.scale = config_.scale.value_or(1 / std::sqrt(static_cast<double>(sizes_.key())));
  options.precision = config_.precision;
  return options;
}

// x (b, t, d_in) → (b, heads, t, key), before they turn
Tensor LatentAttention::queries(const Tensor& x, DType kept, Tensor* low, const Told& told) {
  Tensor from = x;
  if (query_down_) from = query_norm_->forward(linear(*query_down_, x, DType::f32), kept);
  if (query_down_ && told) from = told("query latents", from);
  if (low) *low = from;
  return ref::split_heads(linear(*query_up_, from, kept), config_.num_heads);
}

// x (b, t, d_in) → (b, t, cached): normalised latents, and rotary keys that have not turned
Tensor LatentAttention::latents(const Tensor& x, DType kept, const Told& told) {
  const Tensor both = linear(*down_, x, DType::f32);
  Tensor short_ones = last(both, 0, sizes_.latent).contiguous();
  if (told) short_ones = told("compressed", short_ones);
  const Tensor normed = norm_->forward(short_ones, kept);
  return joined(told ? told("latents", normed) : normed, last(both, sizes_.latent, sizes_.cached()), kept);
}

// latents (b, t, latent), rotary keys (b, t, rotary) → the keys and values of all heads, beside q
LatentAttention::Heads LatentAttention::expanded(const Tensor& q, const Tensor& latents, const Tensor& rotary,
                                                 DType kept) const {
  const Tensor both = ref::split_heads(linear(*up_, latents, kept), config_.num_heads);
  return {q, joined(last(both, 0, sizes_.plain), rotary.unsqueeze(1), kept),
          last(both, sizes_.plain, sizes_.plain + sizes_.value)};
}

Tensor LatentAttention::forward(const Tensor& x, Trace* trace) {
  const bool turns = config_.rope && (x.rank() == 2 || x.rank() == 3);  // forward() refuses another rank
  return forward(x, turns ? rotary_table(*config_.rope, x.size(-2)) : RotaryTable{}, trace);
}

Tensor LatentAttention::forward(const Tensor& given, const RotaryTable& turns, Trace* trace) {
  require_whole(kLatent, out_ != nullptr);
  const DType kept = trace ? DType::f32 : stored(*out_);
  require_input(kLatent, "x", given, config_.d_in, stored(*out_));
  require_context(kLatent, config_.context_length, given.size(-2), 0);
  saved_.reset();  // what the pass before kept: this one has the same sizes
  const bool unbatched = given.rank() == 2;
  const auto shown = [unbatched](const Tensor& t) { return unbatched ? t.select(0, 0) : t; };
  const auto passed = [&](const char* name, const Tensor& t) {
    return trace ? in_batch(trace->pass(name, shown(t))) : t;
  };
  const Told told = trace ? Told(passed) : Told();
  const auto s = std::make_shared<Saved>();
  s->x = in_batch(pass(trace, "inputs", given)), s->turns = turns;
  const Tensor both = latents(s->x, kept, told);
  s->latents = last(both, 0, sizes_.latent).contiguous();
  s->heads = expanded(queries(s->x, kept, &s->low, told), s->latents, last(both, sizes_.latent, sizes_.cached()), kept);
  auto& [q, k, v] = s->heads;
  const bool one = config_.num_heads == 1, turned = turns.cos.defined();
  Trace steps = trace ? steps_within(*trace, unbatched, one, turned) : Trace{};
  if (trace && turned) {
    Trace before = steps_within(*trace, unbatched, one);
    q = before.pass("queries", q), k = before.pass("keys", k);
  }
  for (const Tensor* t : {&q, &k}) turn(last(*t, sizes_.plain, sizes_.key()), turns);
  s->options = options(Align::top_left);
  const Shape weights{q.size(0), q.size(1), q.size(2), q.size(2)};
  if (training_) add_dropout(s->options, rng_, nullptr, weights, config_.dropout);
  s->attention = attention(q, k, v, s->options, trace ? &steps : nullptr);
  s->merged = ref::merge_heads(s->attention.output);
  if (!one) s->merged = passed("merged", s->merged);
  const Tensor z = passed("output", linear(*out_, s->merged, DType::f32));
  if (grad_enabled() && !(trace && trace->edits())) saved_ = s;
  return shown(z);
}

// Rows of a head's part of W_b: first its keys', then its values'.
Tensor LatentAttention::head_rows(std::int64_t head, std::int64_t first, std::int64_t count) const {
  const std::int64_t begin = head * (sizes_.plain + sizes_.value) + first;
  const Parameter& weight = up_->weight;
  if (weight.blocks || weight.scales.defined()) return rows_of(weight, begin, begin + count);
  return weight.value.slice(0, begin, begin + count);
}

// q (b, heads, t, key), turned → the contexts (b, heads, t, value), of the latents in the cache
Tensor LatentAttention::absorbed(const Tensor& q, const DecoderCache& cache, std::optional<std::int64_t> item,
                                 DType kept) const {
  const ProductOptions product{config_.precision, kept};
  const std::int64_t b = q.size(0), t = q.size(2);
  const Tensor wide = Tensor::empty({b, config_.num_heads, t, sizes_.cached()}, kept);
  last(wide, sizes_.latent, sizes_.cached()).copy_from(last(q, sizes_.plain, sizes_.key()));
  for (std::int64_t h = 0; h < config_.num_heads; ++h) {  // q · W_k
    const Tensor plain = last(q.select(1, h), 0, sizes_.plain), rows = head_rows(h, 0, sizes_.plain);
    last(wide.select(1, h), 0, sizes_.latent).copy_from(project(plain, rows.transpose(0, 1), {}, product));
  }
  const AttentionOptions own = options(Align::bottom_right);
  const Tensor sums = (item ? attention(wide, cache, *item, own) : attention(wide, cache, own)).output;
  const Tensor contexts = Tensor::empty({b, config_.num_heads, t, sizes_.value}, kept);
  for (std::int64_t h = 0; h < config_.num_heads; ++h) {  // W_v · (weights · latents)
    const Tensor rows = head_rows(h, sizes_.plain, sizes_.value);
    contexts.select(1, h).copy_from(project(sums.select(1, h), rows, {}, product));
  }
  return contexts;
}

Tensor LatentAttention::forward(const Tensor& x, const RotaryTable& turns, DecoderCache& cache,
                                std::optional<std::int64_t> item) {
  require_whole(kLatent, out_ != nullptr);
  const DType kept = stored(*out_);
  require_input(kLatent, "x", x, config_.d_in, kept);
  const KVCacheConfig& held = cache.config();
  auto* const own = dynamic_cast<KVCache*>(&cache);
  require(own && held.values_in_keys && held.kv_heads == 1 && held.head_dim == sizes_.cached() &&
              held.value_dim == sizes_.latent,
          "a KVCache of cache_config()", "a cache of other sizes");
  const std::int64_t batch = item ? 1 : held.batch, tokens = x.size(-2);
  if (x.rank() != 3 || x.size(0) != batch) {
    throw Error(Error::Kind::shape, kLatent, "x (" + std::to_string(batch) + ", tokens, d_in)", x.shape().str());
  }
  require_context(kLatent, config_.context_length, tokens, item ? cache.length(*item) : cache.max_length());
  const Tensor q = queries(x.contiguous(), kept), both = latents(x.contiguous(), kept).unsqueeze(1);
  turn(last(q, sizes_.plain, sizes_.key()), turns);
  turn(last(both, sizes_.latent, sizes_.cached()), turns);
  item ? cache.append(*item, both.select(0, 0), {}) : cache.append(both, {});
  // Products for each query, key and head, against those that make a key and value of a latent.
  const std::int64_t more = 2 * sizes_.latent - sizes_.plain - sizes_.value;
  Tensor contexts;
  if (item && tokens * more > sizes_.latent * (sizes_.plain + sizes_.value)) {
    const Tensor all = own->keys(*item).to(kept);
    const auto [_, k, v] =
        expanded(q, last(all, 0, sizes_.latent).contiguous(), last(all, sizes_.latent, sizes_.cached()), kept);
    contexts = attention(q, k, v, options(Align::bottom_right)).output;
  } else {
    contexts = absorbed(q, cache, item, kept);
  }
  return linear(*out_, ref::merge_heads(contexts), DType::f32);
}

Module::Gradient LatentAttention::backward(const Tensor& dz) {
  require_forward(kLatent, saved_ != nullptr);
  const Saved& s = *saved_;
  const auto& [q, k, v] = s.heads;
  const Tensor dz3 = in_batch(dz);
  require_gradient(kLatent, dz3, {s.x.size(0), s.x.size(1), config_.d_out}, s.merged.dtype());
  // z = out(merge_heads(attention(q, k, v)))
  const Tensor d_merged = linear_backward(*out_, dz3, s.merged, s.merged.dtype());
  const auto grad = attention_backward(ref::split_heads(d_merged, config_.num_heads), q, k, v, s.options, s.attention);
  // q = query_up(low), its rotary part turned; low = norm(query_down(x)), or x
  const Tensor dq = joined(last(grad.q, 0, sizes_.plain),
                           turned_back(last(grad.q, sizes_.plain, sizes_.key()), s.turns), grad.q.dtype());
  Tensor dx = linear_backward(*query_up_, ref::merge_heads(dq), s.low, DType::f32);
  if (query_down_) dx = linear_backward(*query_down_, query_norm_->backward(dx, {}), s.x, DType::f32);
  // k = (up(latents), one turned key for all heads), v = up(latents)
  const Tensor d_up = joined(last(grad.k, 0, sizes_.plain), grad.v, grad.v.dtype());
  const Tensor d_latents = linear_backward(*up_, ref::merge_heads(d_up), s.latents, DType::f32);
  const Tensor d_rotary = sum_of_heads(turned_back(last(grad.k, sizes_.plain, sizes_.key()), s.turns));
  // latents, rotary = norm(down(x)), down(x)
  const Tensor d_down = joined(norm_->backward(d_latents, {}), d_rotary.select(1, 0), DType::f32);
  dx = linear_backward(*down_, d_down, s.x, DType::f32, dx);
  return {dz.rank() == 3 ? dx : dx.select(0, 0), {}};
}

}  // namespace attn
