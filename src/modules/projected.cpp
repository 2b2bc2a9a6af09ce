// Projections, heads, attention, output projection: the one class behind the modules of chapter 3.
#include <algorithm>
#include <string>

#include "attn/reference.hpp"
#include "core/rows.hpp"
#include "ops/dense.hpp"
#include "ops/input.hpp"
#include "ops/sequence.hpp"

namespace attn {
namespace {

namespace ref = reference;

constexpr const char* kOp = "attention module";

void check_config(const ModuleConfig& c) {
  require_positive(kOp, "d_in", c.d_in);
  require_positive(kOp, "d_out", c.d_out);
  require_positive(kOp, "num_heads", c.num_heads);
  if (c.context_length < 0) {
    throw Error(Error::Kind::argument, kOp, "context_length >= 0 (0 = any)", std::to_string(c.context_length));
  }
  if (c.d_out % c.num_heads != 0) {
    throw Error(Error::Kind::argument, kOp, "d_out divisible by num_heads",
                "d_out = " + std::to_string(c.d_out) + ", num_heads = " + std::to_string(c.num_heads));
  }
  if (!(c.dropout >= 0 && c.dropout <= 1)) {
    throw Error(Error::Kind::argument, kOp, "dropout in [0, 1]", std::to_string(c.dropout));
  }
  if (c.scale) require_finite(kOp, "scale", *c.scale);
  const std::int64_t head_dim = c.d_out / c.num_heads;
  if (c.rope && 2 * static_cast<std::int64_t>(c.rope->inv_freq.size()) > head_dim) {
    throw Error(Error::Kind::argument, kOp,
                "rope of at most head_dim / 2 pairs, for head_dim = " + std::to_string(head_dim),
                std::to_string(c.rope->inv_freq.size()));
  }
}

Tensor batched(const Tensor& x) { return x.rank() == 3 ? x : x.unsqueeze(0); }

}  // namespace

ProjectedAttention::ProjectedAttention(const ModuleConfig& config, Generator& rng, std::string_view prefix)
    : config_(config), rng_(rng) {
  check_config(config);
  const auto layer = [&](std::int64_t d_in, bool has_bias, std::string_view name) {
    const std::string full = std::string(prefix).append(name);
    auto made = config.initialise ? std::make_unique<Linear>(d_in, config.d_out, has_bias, rng, full)
                                  : std::make_unique<Linear>(d_in, config.d_out, has_bias, full);
    made->precision = config.precision;
    return made;
  };
  const auto projection = [&](std::string_view name) { return layer(config.d_in, config.qkv_bias, name); };
  const LayerOrder order = config.layer_order.value_or(LayerOrder::qkv);
  if (order == LayerOrder::qkv) W_query_ = projection("W_query");
  W_key_ = projection("W_key");
  if (order == LayerOrder::kqv) W_query_ = projection("W_query");
  W_value_ = projection("W_value");
  if (config.out_proj) out_proj_ = layer(config.d_out, true, "out_proj");
}

std::vector<Parameter*> ProjectedAttention::parameters() {
  std::vector<Parameter*> all;
  for (const auto* layer : {&W_query_, &W_key_, &W_value_, &out_proj_}) {
    if (*layer) {
      for (Parameter* p : (*layer)->parameters()) all.push_back(p);
    }
  }
  return all;
}

void ProjectedAttention::check_input(const Tensor& x, const char* what) const {
  require_input(kOp, what, x, config_.d_in, stored(config_.precision));
  if (config_.context_length > 0 && x.size(-2) > config_.context_length) {
    throw Error(Error::Kind::shape, kOp,
                "at most context_length = " + std::to_string(config_.context_length) + " tokens",
                std::to_string(x.size(-2)), "raise context_length or shorten the input");
  }
}

AttentionOptions ProjectedAttention::options_for(std::int64_t batch, std::int64_t tq, std::int64_t tk) {
  AttentionOptions options;
  if (config_.causal) options.mask = Mask::causal();
  options.scale = config_.scale;
  options.precision = config_.precision;
  if (training_ && config_.dropout > 0) {
    options.dropout = config_.dropout;
    if (rng_.flavour() == DropoutFlavour::philox) {
      options.dropout_key = rng_.next_u64();
    } else {
      const std::int64_t columns = sequence_ ? sequence_->tokens() : tk;
      options.dropout_keep =
          dropout_keep(rng_, sequence_.get(), {batch, config_.num_heads, tq, columns}, config_.dropout);
    }
  }
  return options;
}

// Of positions 0 to tokens - 1.
RotaryTable ProjectedAttention::turns(std::int64_t tokens) {
  const std::int64_t held = rope_.cos.defined() ? rope_.cos.size(0) : 0;
  if (tokens > held) rope_ = rotary_table(*config_.rope, std::max(tokens, held + held / 2));
  return {rope_.cos.slice(0, 0, tokens), rope_.sin.slice(0, 0, tokens), rope_.layout};
}

// Of the tokens that are here.
RotaryTable ProjectedAttention::own_turns(std::int64_t tokens) {
  return sequence_ ? rotary_rows(turns(sequence_->tokens()), sequence_->positions()) : turns(tokens);
}

// Of the next tokens of each of the cache's items.
RotaryTable ProjectedAttention::turns(const DecoderCache& cache, std::int64_t tokens) {
  const RotaryTable all = turns(cache.max_length() + tokens);
  const Tensor lengths = cache.lengths();
  const Tensor positions = Tensor::empty({lengths.numel(), tokens}, DType::i64);
  for (std::int64_t i = 0; i < positions.numel(); ++i) {
    positions.data<std::int64_t>()[i] = lengths.data<std::int64_t>()[i / tokens] + i % tokens;
  }
  return rotary_rows(all, positions);
}

Tensor ProjectedAttention::forward(const Tensor& x, const Tensor& source, Trace* trace) {
  check_input(x, "x");
  check_input(source, "source");
  if (x.rank() != source.rank() || (x.rank() == 3 && x.size(0) != source.size(0))) {
    throw Error(Error::Kind::shape, kOp, "x and source of one batch size",
                x.shape().str() + " and " + source.shape().str());
  }
  const std::int64_t heads = config_.num_heads;
  saved_.reset();  // what the pass before kept: this one has the same sizes
  Saved s;
  s.x = batched(x), s.source = batched(source);
  s.self = x.raw() == source.raw() && x.shape() == source.shape() && x.strides() == source.strides();
  require_part(kOp, sequence_.get(), x, -2, config_.context_length);
  if (sequence_ && (!s.self || trace)) {
    throw Error(Error::Kind::argument, kOp, "self-attention without a trace on a part of a sequence",
                trace ? "a trace" : "another source");
  }
  const DType kept = trace ? DType::f32 : stored(config_.precision);
  s.q = ref::split_heads(linear(*W_query_, s.x, kept), heads);       // (b, h, tq, head_dim)
  s.k = ref::split_heads(linear(*W_key_, s.source, kept), heads);    // (b, h, tk, head_dim)
  s.v = ref::split_heads(linear(*W_value_, s.source, kept), heads);  // (b, h, tk, head_dim)
  s.options = options_for(s.x.size(0), x.size(-2), source.size(-2));
  Tensor queries, keys;  // before they were turned, for the trace
  if (config_.rope) {
    if (trace) queries = s.q.clone(), keys = s.k.clone();
    rotary_in_place(s.q, own_turns(s.q.size(2)));
    rotary_in_place(s.k, own_turns(s.k.size(2)));
  }

  Trace steps;
  s.attention = sequence_ ? sequence_->attention(s.q, s.k, s.v, s.options)
                          : attention(s.q, s.k, s.v, s.options, trace ? &steps : nullptr);
  if (trace && config_.rope) steps = before_rotation(steps, queries, keys);
  s.merged = ref::merge_heads(s.attention.output);  // (b, tq, d_out)
  const Tensor z = out_proj_ ? linear(*out_proj_, s.merged, DType::f32) : s.merged.to(DType::f32);

  const bool unbatched = x.rank() == 2;
  const auto shown = [unbatched](const Tensor& t) { return unbatched ? t.select(0, 0) : t; };
  if (trace) {
    trace->record("inputs", x);
    if (!s.self) trace->record("source", source);
    record_steps(*trace, steps, unbatched, heads == 1);
    if (heads > 1) trace->record("merged", shown(s.merged));
    if (out_proj_) trace->record("output", shown(z));
  }
  saved_ = std::move(s);
  return shown(z);
}

Tensor ProjectedAttention::forward(const Tensor& x_in, DecoderCache& cache) {
  check_input(x_in, "x");
  const Tensor x = batched(x_in);
  const std::int64_t heads = config_.num_heads, held = cache.max_length(), longest = config_.context_length;
  if (longest > 0 && x.size(1) > longest - held) {
    throw Error(Error::Kind::shape, kOp,
                "at most context_length = " + std::to_string(longest) + " tokens with those in the cache",
                std::to_string(held) + " and " + std::to_string(x.size(1)));
  }
  const Tensor q = ref::split_heads(W_query_->forward(x), heads), k = ref::split_heads(W_key_->forward(x), heads);
  if (config_.rope && x.size(0) == cache.config().batch) {  // append() refuses another
    const RotaryTable table = turns(cache, x.size(1));
    rotary_in_place(q, table);
    rotary_in_place(k, table);
  }
  cache.append(k, ref::split_heads(W_value_->forward(x), heads));
  AttentionOptions options;
  if (config_.causal) options.mask = Mask::causal(Align::bottom_right);
  options.scale = config_.scale;
  options.precision = config_.precision;
  const Tensor merged = ref::merge_heads(attention(q, cache, options).output);
  const Tensor z = out_proj_ ? out_proj_->forward(merged) : merged;
  return x_in.rank() == 2 ? z.select(0, 0) : z;
}

Module::Gradient ProjectedAttention::backward(const Tensor& dz) {
  require_forward(kOp, saved_.has_value());
  const Saved& s = *saved_;
  const Tensor dz3 = batched(dz);
  if (!(dz3.shape() == s.merged.shape())) {
    throw Error(Error::Kind::shape, kOp, "dz of the output's shape " + s.merged.shape().str(), dz.shape().str());
  }
  // z = out_proj(merged)
  const Tensor d_merged = out_proj_ ? linear_backward(*out_proj_, dz3, s.merged, s.merged.dtype()) : dz3;
  // merged = merge_heads(context), context = attention(q, k, v)
  const Tensor d_context = ref::split_heads(d_merged, config_.num_heads);
  auto grad = sequence_ ? sequence_->attention_backward(d_context, s.q, s.k, s.v, s.options, s.attention)
                        : attention_backward(d_context, s.q, s.k, s.v, s.options, s.attention);
  if (config_.rope) {  // q, k = rotary(q, k)
    grad.q = rotary_backward(grad.q, own_turns(grad.q.size(2)));
    grad.k = rotary_backward(grad.k, own_turns(grad.k.size(2)));
  }
  // q, k, v = split_heads(W · x)
  const auto back = [](const std::unique_ptr<Linear>& layer, const Tensor& d, const Tensor& x, const Tensor& residual) {
    return linear_backward(*layer, ref::merge_heads(d), x, DType::f32, residual);
  };
  const Tensor dx = back(W_query_, grad.q, s.x, {});
  const Tensor d_keys = back(W_key_, grad.k, s.source, s.self ? dx : Tensor{});
  const Tensor d_source = back(W_value_, grad.v, s.source, d_keys);
  const auto shown = [&](const Tensor& t) { return dz.rank() == 2 ? t.select(0, 0) : t; };
  if (s.self) return {shown(d_source), {}};
  return {shown(dx), shown(d_source)};
}

namespace {

ModuleConfig one_head(ModuleConfig config, bool causal) {
  config.num_heads = 1;
  config.out_proj = false;
  config.causal = config.causal && causal;
  return config;
}

ModuleConfig seed_003_head(ModuleConfig config) {
  if (!config.scale) config.scale = 1;
  if (!config.layer_order) config.layer_order = LayerOrder::kqv;
  return one_head(config, true);
}

ModuleConfig without_mask(ModuleConfig config) {
  config.causal = false;
  config.rope = {};  // distances to another text's tokens mean nothing
  return config;
}

}  // namespace

SelfAttentionV2::SelfAttentionV2(ModuleConfig config, Generator& rng)
    : ProjectedAttention(one_head(config, false), rng, "") {}

SelfAttentionHead::SelfAttentionHead(ModuleConfig config, Generator& rng)
    : ProjectedAttention(seed_003_head(config), rng, "") {}

CausalAttention::CausalAttention(ModuleConfig config, Generator& rng, std::string_view prefix)
    : ProjectedAttention(one_head(config, true), rng, prefix) {}

CrossAttention::CrossAttention(ModuleConfig config, Generator& rng)
    : ProjectedAttention(without_mask(config), rng, "") {}

MultiHeadAttention::MultiHeadAttention(const ModuleConfig& config, Generator& rng)
    : ProjectedAttention(config, rng, "") {}

}  // namespace attn
