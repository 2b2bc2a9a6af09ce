// MultiHeadAttentionWrapper: heads one after the other, concatenated.
#include "attn/error.hpp"
#include "attn/modules.hpp"
#include "attn/reference.hpp"
#include "ops/input.hpp"

namespace attn {

MultiHeadAttentionWrapper::MultiHeadAttentionWrapper(const ModuleConfig& config, Generator& rng) {
  require_positive("MultiHeadAttentionWrapper", "num_heads", config.num_heads);
  constexpr std::int64_t most = 1 << 16;  // each head has memory of its own
  if (config.num_heads > most) {
    throw Error(Error::Kind::argument, "MultiHeadAttentionWrapper", "at most " + std::to_string(most) + " heads",
                std::to_string(config.num_heads));
  }
  if (config.kv_heads != 0 && config.kv_heads != config.num_heads) {
    throw Error(Error::Kind::argument, "MultiHeadAttentionWrapper", "heads with keys of their own",
                "kv_heads = " + std::to_string(config.kv_heads));
  }
  ModuleConfig one = config;
  one.num_heads = one.kv_heads = 1;
  for (std::int64_t i = 0; i < config.num_heads; ++i) {
    heads_.push_back(std::make_unique<CausalAttention>(one, rng, "heads." + std::to_string(i) + "."));
  }
}

Tensor MultiHeadAttentionWrapper::forward(const Tensor& x, Trace* trace) {
  require_whole("MultiHeadAttentionWrapper", !heads_.empty());
  const Tensor inputs = pass(trace, "inputs", x);
  std::vector<Tensor> contexts;
  for (std::size_t i = 0; i < heads_.size(); ++i) {
    const Trace::Scope scope(trace, "heads." + std::to_string(i));
    contexts.push_back(heads_[i]->AttentionLayer::forward(inputs, trace));
  }
  return pass(trace, "merged", concat_last(contexts));
}

Module::Gradient MultiHeadAttentionWrapper::backward(const Tensor& dz) {
  require_whole("MultiHeadAttentionWrapper", !heads_.empty());
  const std::int64_t d_out = heads_.front()->config().d_out;
  if (dz.rank() < 2 || dz.size(-1) != d_out * static_cast<std::int64_t>(heads_.size())) {
    throw Error(Error::Kind::shape, "MultiHeadAttentionWrapper",
                "dz (…, tokens, " + std::to_string(d_out * static_cast<std::int64_t>(heads_.size())) + ")",
                dz.shape().str());
  }
  Tensor dx;
  std::int64_t begin = 0;
  for (const auto& head : heads_) {
    // z = concat(head(x) for every head)
    const Tensor part = head->backward(dz.slice(-1, begin, begin + d_out)).x;
    dx = dx.defined() ? reference::add(dx, part) : part;
    begin += d_out;
  }
  return {dx, {}};
}

std::vector<Parameter*> MultiHeadAttentionWrapper::parameters() {
  std::vector<Parameter*> all;
  for (const auto& head : heads_) {
    for (Parameter* p : head->parameters()) all.push_back(p);
  }
  return all;
}

void MultiHeadAttentionWrapper::train(bool on) {
  Module::train(on);
  for (const auto& head : heads_) head->train(on);
}

}  // namespace attn
