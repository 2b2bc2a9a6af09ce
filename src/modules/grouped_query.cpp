#include <string>

#include "attn/blocks.hpp"
#include "attn/reference.hpp"
#include "ops/dense.hpp"
#include "ops/input.hpp"
#include "ops/sequence.hpp"

namespace attn {
namespace {

namespace ref = reference;

constexpr const char* kOp = "GroupedQueryAttention";

GroupedQueryConfig checked(GroupedQueryConfig c) {
  require_positive(kOp, "d_in", c.d_in);
  require_positive(kOp, "heads", c.heads);
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.head_dim == 0) c.head_dim = c.d_in / c.heads;
  require_positive(kOp, "kv_heads", c.kv_heads);
  require_positive(kOp, "head_dim", c.head_dim);
  if (c.heads % c.kv_heads != 0) {
    throw Error(Error::Kind::argument, kOp, "heads that are a multiple of kv_heads",
                std::to_string(c.heads) + " and " + std::to_string(c.kv_heads));
  }
  constexpr std::int64_t most = 1 << 30;  // as attention() has it
  if (c.heads >= most || c.head_dim >= most) {
    throw Error(Error::Kind::argument, kOp, "heads and head_dim below 2^30",
                std::to_string(c.heads) + " and " + std::to_string(c.head_dim));
  }
  require_finite(kOp, "softcap", c.softcap, 0);
  if (c.scale) require_finite(kOp, "scale", *c.scale);
  if (c.window < 0) throw Error(Error::Kind::argument, kOp, "window >= 0 (0 = none)", std::to_string(c.window));
  return c;
}

Tensor batched(const Tensor& x) { return x.rank() == 3 ? x : x.unsqueeze(0); }

// (b, t, heads · d) normalised in rows of the norm's width
Tensor normalised(RMSNorm& norm, const Tensor& x, DType dtype) {
  const Tensor rows = x.to(DType::f32).contiguous().view({-1, norm.weight.value.numel()});
  return norm.forward(rows, dtype).view(x.shape());
}

Tensor normalised_backward(RMSNorm& norm, const Tensor& dy) {
  const Tensor rows = dy.to(DType::f32).contiguous().view({-1, norm.weight.value.numel()});
  return norm.backward(rows, {}).view(dy.shape());
}

}  // namespace

GroupedQueryAttention::GroupedQueryAttention(const GroupedQueryConfig& config, std::string_view prefix)
    : config_(checked(config)),
      q_proj_(config_.d_in, config_.heads * config_.head_dim, config_.qkv_bias, std::string(prefix) + "q_proj"),
      k_proj_(config_.d_in, config_.kv_heads * config_.head_dim, config_.qkv_bias, std::string(prefix) + "k_proj"),
      v_proj_(config_.d_in, config_.kv_heads * config_.head_dim, config_.qkv_bias, std::string(prefix) + "v_proj"),
      o_proj_(config_.heads * config_.head_dim, config_.d_in, config_.out_bias, std::string(prefix) + "o_proj") {
  for (Linear* layer : {&q_proj_, &k_proj_, &v_proj_, &o_proj_}) layer->precision = config_.precision;
  if (config_.norm != QueryKeyNorm::none) {
    const auto norm = [&](std::int64_t heads, const char* name) {
      const std::int64_t together = config_.norm == QueryKeyNorm::all_heads ? heads : 1;
      return std::make_unique<RMSNorm>(together * config_.head_dim, config_.epsilon, config_.form,
                                       std::string(prefix) + name);
    };
    q_norm_ = norm(config_.heads, "q_norm");
    k_norm_ = norm(config_.kv_heads, "k_norm");
  }
  sinks_ = {std::string(prefix) + "sinks", config_.sinks ? Tensor::zeros({config_.heads}) : Tensor{}, {}};
}

std::vector<Parameter*> GroupedQueryAttention::parameters() {
  std::vector<Parameter*> all;
  for (Linear* layer : {&q_proj_, &k_proj_, &v_proj_, &o_proj_}) {
    for (Parameter* p : layer->parameters()) all.push_back(p);
  }
  if (q_norm_) all.push_back(&q_norm_->weight), all.push_back(&k_norm_->weight);
  if (config_.sinks) all.push_back(&sinks_);
  return all;
}

AttentionOptions GroupedQueryAttention::options(Align align) const {
  AttentionOptions options;
  options.mask = Mask::causal(align);
  if (config_.window > 0) options.mask.window_left = config_.window - 1;
  options.scale = config_.scale;
  options.softcap = config_.softcap;
  options.sinks = sinks_.value;
  options.precision = config_.precision;
  return options;
}

// x (b, t, d_in) → queries, keys and values; `before` gets queries and keys as they were before they turned.
GroupedQueryAttention::Heads GroupedQueryAttention::project_heads(const Tensor& x, const RotaryTable& turns,
                                                                  Trace* before) {
  const DType kept = before ? DType::f32 : stored(config_.precision);
  Tensor q = linear(q_proj_, x, q_norm_ ? DType::f32 : kept), k = linear(k_proj_, x, k_norm_ ? DType::f32 : kept);
  if (q_norm_) q = normalised(*q_norm_, q, kept), k = normalised(*k_norm_, k, kept);
  const Heads heads{ref::split_heads(q, config_.heads), ref::split_heads(k, config_.kv_heads),
                    ref::split_heads(linear(v_proj_, x, kept), config_.kv_heads)};
  if (turns.cos.defined()) {
    if (before) before->record("queries", heads.q), before->record("keys", heads.k);
    rotary_in_place(heads.q, turns);
    rotary_in_place(heads.k, turns);
  }
  return heads;
}

Tensor GroupedQueryAttention::forward(const Tensor& x_in, const RotaryTable& turns, Trace* trace) {
  require_input(kOp, "x", x_in, config_.d_in, stored(config_.precision));
  require_part(kOp, sequence_.get(), x_in, -2);
  if (sequence_ && trace) {
    throw Error(Error::Kind::argument, kOp, "no trace on a part of a sequence", "a trace");
  }
  saved_.reset();  // what the pass before kept: this one has the same sizes
  const Tensor x = batched(x_in);
  const bool unbatched = x_in.rank() == 2;
  Trace before, steps;
  const auto [q, k, v] = project_heads(x, turns, trace ? &before : nullptr);
  const AttentionOptions own = options(Align::top_left);
  const AttentionResult result =
      sequence_ ? sequence_->attention(q, k, v, own) : attention(q, k, v, own, trace ? &steps : nullptr);
  Saved s{x, q, k, v, {}, turns, result};
  s.merged = ref::merge_heads(s.attention.output);  // (b, t, heads · head_dim)
  const Tensor z = linear(o_proj_, s.merged, DType::f32);
  const auto shown = [unbatched](const Tensor& t) { return unbatched ? t.select(0, 0) : t; };
  if (trace) {
    if (turns.cos.defined()) steps = before_rotation(steps, before["queries"], before["keys"]);
    trace->record("inputs", x_in);
    record_steps(*trace, steps, unbatched, config_.heads == 1);
    if (config_.heads > 1) trace->record("merged", shown(s.merged));
    trace->record("output", shown(z));
  }
  saved_ = std::move(s);
  return shown(z);
}

Tensor GroupedQueryAttention::forward(const Tensor& x, const RotaryTable& turns, DecoderCache& cache,
                                      std::optional<std::int64_t> item) {
  require_input(kOp, "x", x, config_.d_in, stored(config_.precision));
  if (x.rank() != 3 || (item && x.size(0) != 1)) {
    throw Error(Error::Kind::shape, kOp, item ? "x (1, tokens, d_in) for one item" : "x (batch, tokens, d_in)",
                x.shape().str());
  }
  const auto [q, k, v] = project_heads(x, turns, nullptr);
  const AttentionOptions own = options(Align::bottom_right);
  AttentionResult result;
  if (item) {
    cache.append(*item, k.select(0, 0), v.select(0, 0));
    result = attention(q, cache, *item, own);
  } else {
    cache.append(k, v);
    result = attention(q, cache, own);
  }
  return linear(o_proj_, ref::merge_heads(result.output), DType::f32);
}

Module::Gradient GroupedQueryAttention::backward(const Tensor& dz) {
  require_forward(kOp, saved_.has_value());
  const Saved& s = *saved_;
  const Tensor dz3 = batched(dz);
  if (dz3.rank() != 3 || dz3.size(-1) != config_.d_in || dz3.numel() != s.x.numel()) {
    throw Error(Error::Kind::shape, kOp, "dz of the output's shape " + s.x.shape().str(), dz.shape().str());
  }
  // z = o_proj(merged), merged = merge_heads(context), context = attention(q, k, v)
  const Tensor d_merged = linear_backward(o_proj_, dz3, s.merged, s.merged.dtype());
  const Tensor d_context = ref::split_heads(d_merged, config_.heads);
  const AttentionOptions own = options(Align::top_left);
  auto grad = sequence_ ? sequence_->attention_backward(d_context, s.q, s.k, s.v, own, s.attention)
                        : attention_backward(d_context, s.q, s.k, s.v, own, s.attention);
  if (config_.sinks) accumulate(sinks_, grad.sinks);
  if (s.turns.cos.defined()) {  // q, k = rotary(q, k)
    grad.q = rotary_backward(grad.q, s.turns);
    grad.k = rotary_backward(grad.k, s.turns);
  }
  Tensor dq = ref::merge_heads(grad.q), dk = ref::merge_heads(grad.k);
  if (q_norm_) dq = normalised_backward(*q_norm_, dq), dk = normalised_backward(*k_norm_, dk);
  // q, k, v = proj(x)
  const Tensor by_q = linear_backward(q_proj_, dq, s.x, DType::f32);
  const Tensor by_k = linear_backward(k_proj_, dk, s.x, DType::f32, by_q);
  const Tensor dx = linear_backward(v_proj_, ref::merge_heads(grad.v), s.x, DType::f32, by_k);
  return {dz.rank() == 2 ? dx.select(0, 0) : dx, {}};
}

}  // namespace attn
