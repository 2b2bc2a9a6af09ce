#include <initializer_list>
#include <string>

#include "attn/error.hpp"
#include "attn/language_model.hpp"
#include "core/rows.hpp"
#include "lm/names.hpp"
#include "ops/dense.hpp"
#include "ops/input.hpp"

namespace attn {
namespace {

constexpr std::int64_t kConvolution = 4;

// In place of an attention layer.
std::unique_ptr<RecurrentLayer> recurrent_of(const LanguageModelConfig& c, const LayerConfig& layer, Generator& rng,
                                             const std::string& prefix) {
  if (layer.mixer == Mixer::softmax) return nullptr;
  ModuleConfig a;
  a.d_in = a.d_out = c.width;
  a.precision = c.precision, a.initialise = false;
  if (c.gated_delta) {
    a.out_bias = false;
    return std::make_unique<RecurrentLayer>(a, *c.gated_delta, rng, prefix, names_of(c.family).of_recurrent);
  }
  a.num_heads = c.heads, a.epsilon = c.epsilon;
  a.qkv_bias = c.qkv_bias, a.out_bias = c.out_bias;
  return std::make_unique<GatedDeltaNet>(a, rng, kConvolution, prefix);
}

ModuleConfig softmax_config(const LanguageModelConfig& c, const LayerConfig& layer) {
  ModuleConfig a;
  a.d_in = a.d_out = c.width;
  a.num_heads = c.heads, a.kv_heads = c.kv_heads, a.head_dim = c.head_dim;
  a.qkv_bias = c.qkv_bias, a.out_bias = c.out_bias;
  a.query_key_norm = c.query_key_norm;
  a.epsilon = c.epsilon;
  a.norm = c.norm;
  a.window = layer.window;
  a.softcap = c.attention_softcap;
  a.sinks = c.sinks;
  a.output_gate = c.output_gate;
  a.scale = c.attention_scale;
  a.dropout = c.dropout;
  a.causal = c.causal;
  a.precision = c.precision;
  a.initialise = false;
  return a;
}

ModuleConfig attention_config(const LanguageModelConfig& c, const LayerConfig& layer) {
  if (!c.latent && layer.mixer == Mixer::softmax) return softmax_config(c, layer);
  ModuleConfig a;
  a.d_in = a.d_out = 1, a.initialise = false;
  return a;
}

// In place of it, too. What it does not have is refused there.
std::unique_ptr<LatentAttention> latent_of(const LanguageModelConfig& c, const LayerConfig& layer, Generator& rng,
                                           const std::string& prefix) {
  if (!c.latent || layer.mixer != Mixer::softmax) return nullptr;
  ModuleConfig a = softmax_config(c, layer);
  a.epsilon = ModuleConfig{}.epsilon;  // of the latents' norms, whatever the config has for the others
  return make_latent_attention(a, *c.latent, rng, prefix);
}

FeedForwardConfig feed_forward_config(const LanguageModelConfig& c) {
  return {.width = c.width,
          .inner_width = c.inner_width,
          .activation = c.activation,
          .gated = c.gated,
          .has_bias = c.feed_forward_bias,
          .precision = c.precision};
}

}  // namespace

Block::Block(const LanguageModelConfig& config, const LayerConfig& layer, Generator& rng, std::string_view prefix)
    : attention(attention_config(config, layer), rng, std::string(prefix) + names_of(config.family).attention,
                names_of(config.family).of_attention),
      recurrent(recurrent_of(config, layer, rng, std::string(prefix) + names_of(config.family).recurrent)),
      latent(latent_of(config, layer, rng, std::string(prefix) + names_of(config.family).attention)),
      feed_forward(feed_forward_config(config), std::string(prefix) + names_of(config.family).feed_forward,
                   names_of(config.family).of_feed_forward),
      attention_name_(names_of(config.family).attention),
      residual_scale_(config.residual_scale),
      attention_branch_(branch(config, layer, rng, std::string(prefix) + names_of(config.family).pre_attention,
                               std::string(prefix) + "post_attention_layernorm",
                               std::string(prefix) + names_of(config.family).attention_sum)),
      feed_forward_branch_(
          branch(config, layer, rng,
                 std::string(prefix) + pre_feed_forward_name(config.family, config.post_norm && !layer.pre_norm_alone),
                 std::string(prefix) + "post_feedforward_layernorm",
                 std::string(prefix) + names_of(config.family).feed_forward_sum)) {}

Block::Branch Block::branch(const LanguageModelConfig& config, const LayerConfig& layer, Generator& rng,
                            const std::string& pre, const std::string& post, const std::string& sum) {
  const bool alone = layer.pre_norm_alone;
  const auto norm = [&](bool there, const std::string& name) {
    return there ? std::make_unique<Norm>(config.norm, config.width, config.epsilon, name) : nullptr;
  };
  return {norm(config.pre_norm || alone, pre),
          norm(config.post_norm && !alone, post),
          norm(config.sum_norm && !alone, sum),
          Dropout(config.dropout, rng),
          {}};
}

// sum(x + residual_scale · dropout(post(part(pre(x)))))
template <class F>
Tensor Block::through(Branch& branch, const Tensor& x, DType kept, bool drops, Trace* trace, const F& part) {
  branch.x = !branch.pre && grad_enabled() ? x : Tensor{};
  Tensor y = part(branch.pre ? branch.pre->forward(x, kept) : x);
  if (branch.post) y = branch.post->forward(y, DType::f32);
  if (drops) y = branch.dropout.forward(y);
  scale_in_place(y, residual_scale_);
  y = pass(trace, "added", y);
  add_in_place(y, x);
  return branch.sum ? branch.sum->forward(y, DType::f32) : y;
}

// Its gradient; part(dy) is the gradient of the part's input.
template <class F>
Tensor Block::back(Branch& branch, const Tensor& d_out, const F& part) {
  const Tensor dy = branch.sum ? branch.sum->backward(d_out).x : d_out;
  Tensor d = dy;
  if (residual_scale_ != 1) scale_in_place(d = dy.clone(), residual_scale_);
  d = branch.dropout.backward(d).x;
  if (branch.post) d = branch.post->backward(d).x;
  d = part(d);
  if (branch.pre) return branch.pre->backward(d, dy);
  add_in_place(d, dy);
  return d;
}

Tensor Block::forward(const Tensor& given, const RotaryTable& turns, Trace* trace) {
  const DType kept = trace ? DType::f32 : stored(feed_forward.up);
  const Tensor x = pass(trace, "inputs", given);
  const auto attend = [&] {
    const Trace::Scope scope(trace, attention_name_.substr(0, attention_name_.size() - 1));
    return through(attention_branch_, x, kept, true, trace, [&](const Tensor& h) {
      if (recurrent) return recurrent->forward(h, trace);
      return latent ? latent->forward(h, turns, trace) : attention.forward(h, turns, trace);
    });
  };
  const auto think = [&](const Tensor& attended) {
    const Trace::Scope scope(trace, "mlp");
    return through(feed_forward_branch_, attended, kept, true, trace,
                   [&](const Tensor& h) { return feed_forward.forward(h); });
  };
  return pass(trace, "output", think(attend()));
}

Tensor Block::forward(const Tensor& x, const RotaryTable& turns, DecoderCache& cache,
                      std::optional<std::int64_t> item) {
  const DType kept = stored(feed_forward.up);
  const Tensor attended = through(attention_branch_, x, kept, false, nullptr, [&](const Tensor& h) {
    if (recurrent) return recurrent->forward(h, dynamic_cast<RecurrentCache&>(cache), item);
    return latent ? latent->forward(h, turns, cache, item) : attention.forward(h, turns, cache, item);
  });
  return through(feed_forward_branch_, attended, kept, false, nullptr,
                 [&](const Tensor& h) { return feed_forward.forward(h); });
}

Module::Gradient Block::backward(const Tensor& dy) {
  const Tensor d_attended = back(feed_forward_branch_, dy, [&](const Tensor& d) {
    return feed_forward.backward(d, feed_forward_branch_.input());
  });
  return {back(attention_branch_, d_attended, [&](const Tensor& d) { return mixer().backward(d).x; }), {}};
}

Module& Block::mixer() {
  if (recurrent) return *recurrent;
  return latent ? static_cast<Module&>(*latent) : attention;
}

void Block::set_texts(const Tensor& starts) {
  if (recurrent) return recurrent->set_texts(starts);
  latent ? latent->set_texts(starts) : attention.set_texts(starts);
}

std::vector<Parameter*> Block::parameters() {
  const Branch &a = attention_branch_, &f = feed_forward_branch_;
  return parameters_of(
      {a.pre.get(), &mixer(), a.post.get(), a.sum.get(), f.pre.get(), &feed_forward, f.post.get(), f.sum.get()});
}

void Block::train(bool on) {
  for (Module* part :
       std::initializer_list<Module*>{&mixer(), &attention_branch_.dropout, &feed_forward_branch_.dropout}) {
    part->train(on);
  }
  Module::train(on);
}

void Block::set_sequence(const std::shared_ptr<SequencePart>& part) {
  if (part && (recurrent || latent)) {
    throw Error(Error::Kind::argument, "Block",
                recurrent ? "whole texts, where a layer is recurrent" : "whole texts, where attention has latents",
                "a part of a sequence", "share batches out instead, --ranks data=N");
  }
  attention.set_sequence(part);
  attention_branch_.dropout.set_sequence(part);
  feed_forward_branch_.dropout.set_sequence(part);
}

}  // namespace attn
