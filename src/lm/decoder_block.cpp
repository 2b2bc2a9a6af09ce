#include <string>

#include "attn/language_model.hpp"
#include "core/rows.hpp"
#include "ops/dense.hpp"

namespace attn {
namespace {

GroupedQueryConfig attention_config(const LanguageModelConfig& c, const LayerConfig& layer) {
  GroupedQueryConfig a;
  a.d_in = c.width;
  a.heads = c.heads, a.kv_heads = c.kv_heads, a.head_dim = c.head_dim;
  a.qkv_bias = c.qkv_bias, a.out_bias = c.out_bias;
  a.norm = c.query_key_norm;
  a.epsilon = c.epsilon;
  a.form = c.norm;
  a.window = layer.window;
  a.softcap = c.attention_softcap;
  a.sinks = c.sinks;
  a.scale = c.attention_scale;
  a.precision = c.precision;
  return a;
}

}  // namespace

DecoderBlock::DecoderBlock(const LanguageModelConfig& config, const LayerConfig& layer, std::string_view prefix)
    : attention(attention_config(config, layer), std::string(prefix) + "self_attn."),
      feed_forward(config.width, config.inner_width, config.activation, config.feed_forward_bias,
                   std::string(prefix) + "mlp."),
      residual_scale_(config.residual_scale) {
  feed_forward.set_precision(config.precision);
  const auto norm = [&](bool there, const char* name) {
    return there ? std::make_unique<RMSNorm>(config.width, config.epsilon, config.norm, std::string(prefix) + name)
                 : nullptr;
  };
  attention_norms_ = {norm(config.pre_norm, "input_layernorm"), norm(config.post_norm, "post_attention_layernorm")};
  feed_forward_norms_ = {
      norm(config.pre_norm, config.post_norm ? "pre_feedforward_layernorm" : "post_attention_layernorm"),
      norm(config.post_norm, "post_feedforward_layernorm")};
}

// x + residual_scale · post(part(pre(x)))
template <class F>
Tensor DecoderBlock::through(Branch& branch, const Tensor& x, DType kept, const F& part) {
  Tensor y = part(branch.pre ? branch.pre->forward(x, kept) : x);
  if (branch.post) y = branch.post->forward(y, DType::f32);
  scale_in_place(y, residual_scale_);
  add_in_place(y, x);
  return y;
}

// Its gradient; part(dy) is the gradient of the part's input.
template <class F>
Tensor DecoderBlock::back(Branch& branch, const Tensor& dy, const F& part) {
  Tensor d = dy;
  if (residual_scale_ != 1) scale_in_place(d = dy.clone(), residual_scale_);
  if (branch.post) d = branch.post->backward(d).x;
  d = part(d);
  if (branch.pre) return branch.pre->backward(d, dy);
  add_in_place(d, dy);
  return d;
}

Tensor DecoderBlock::forward(const Tensor& x, const RotaryTable& turns, Trace* trace) {
  const DType kept = trace ? DType::f32 : stored(feed_forward.gate_proj.precision);
  const Tensor attended = through(attention_norms_, x, kept, [&](const Tensor& h) {
    const Trace::Scope scope(trace, "self_attn");
    return attention.forward(h, turns, trace);
  });
  const Tensor y =
      through(feed_forward_norms_, attended, kept, [&](const Tensor& h) { return feed_forward.forward(h); });
  if (trace) trace->record("output", y);
  return y;
}

Tensor DecoderBlock::forward(const Tensor& x, const RotaryTable& turns, DecoderCache& cache,
                             std::optional<std::int64_t> item) {
  const DType kept = stored(feed_forward.gate_proj.precision);
  const Tensor attended =
      through(attention_norms_, x, kept, [&](const Tensor& h) { return attention.forward(h, turns, cache, item); });
  return through(feed_forward_norms_, attended, kept, [&](const Tensor& h) { return feed_forward.forward(h); });
}

Module::Gradient DecoderBlock::backward(const Tensor& dy) {
  const Tensor d_attended = back(feed_forward_norms_, dy, [&](const Tensor& d) { return feed_forward.backward(d).x; });
  return {back(attention_norms_, d_attended, [&](const Tensor& d) { return attention.backward(d).x; }), {}};
}

std::vector<Parameter*> DecoderBlock::parameters() {
  std::vector<Parameter*> all = attention.parameters();
  for (Parameter* p : feed_forward.parameters()) all.push_back(p);
  for (Branch* branch : {&attention_norms_, &feed_forward_norms_}) {
    for (const auto& norm : {branch->pre.get(), branch->post.get()}) {
      if (norm) all.push_back(&norm->weight);
    }
  }
  return all;
}

}  // namespace attn
