#include "attn/gpt.hpp"

#include <array>
#include <cmath>
#include <string>

#include "core/rows.hpp"
#include "ops/embedding.hpp"
#include "lm/head.hpp"
#include "ops/dense.hpp"
#include "ops/input.hpp"
#include "ops/sequence.hpp"
#include "ops/weights.hpp"

namespace attn {
namespace {

constexpr const char* kOp = "GPT";
constexpr std::int64_t kMostLayers = 1 << 16;

const GPTConfig& checked(const GPTConfig& c) {
  require_positive(kOp, "vocab_size", c.vocab_size);
  require_positive(kOp, "context_length", c.context_length);
  require_positive(kOp, "layers", c.layers);
  if (c.layers > kMostLayers) {
    throw Error(Error::Kind::argument, kOp, "at most " + std::to_string(kMostLayers) + " layers",
                std::to_string(c.layers));
  }
  require_positive(kOp, "heads", c.heads);
  require_positive(kOp, "width", c.width);
  return c;
}

Tensor batched(const Tensor& ids) { return (ids.rank() == 2 ? ids : ids.unsqueeze(0)).contiguous(); }

}  // namespace

GPTConfig gpt2(std::string_view size) {
  constexpr std::array<std::pair<std::string_view, std::int64_t>, 4> layers{
      {{"117M", 12}, {"345M", 24}, {"762M", 36}, {"1.5B", 48}}};
  const ModuleConfig attention = gpt2_attention(size);  // throws for another name
  GPTConfig config;
  config.vocab_size = 50257;
  config.context_length = attention.context_length;
  for (const auto& [name, count] : layers) config.layers = name == size ? count : config.layers;
  config.heads = attention.num_heads;
  config.width = attention.d_out;
  config.dropout = attention.dropout;
  return config;
}

GPT::GPT(const GPTConfig& config, Generator& rng)
    : CausalLM(kOp, 2),
      dropout(checked(config).dropout, rng),
      ln_f(config.width, config.epsilon, "ln_f"),
      config_(config) {
  wte = {"wte.weight", Tensor::zeros({config.vocab_size, config.width}), {}};
  wpe = {"wpe.weight", Tensor::zeros({config.context_length, config.width}), {}};
  for (std::int64_t i = 0; i < config.layers; ++i) {
    h.push_back(std::make_unique<Block>(config, rng, "h." + std::to_string(i) + "."));
  }
  lm_head = {"lm_head.weight", config.tied ? Tensor{} : Tensor::zeros({config.vocab_size, config.width}), {}};
  if (config.initialise) initialise(rng);
}

void GPT::initialise(Generator& rng) {
  const double residual = 0.02 / std::sqrt(2 * static_cast<double>(config_.layers));
  for (Parameter* p : parameters()) {  // called by the constructor
    if (p->value.rank() != 2) continue;
    const bool ends_branch = p->name.ends_with("out_proj.weight") || p->name.ends_with("c_proj.weight");
    p->value = rng.randn(p->value.shape());
    scale_in_place(p->value, ends_branch ? residual : 0.02);
  }
}

WeightParts GPT::weight_parts() {
  WeightParts parts{{&wte}, {&wpe}};
  for (const auto& block : h) parts.push_back(block->parameters());
  parts.push_back(ln_f.parameters());
  if (!config_.tied) parts.push_back({&lm_head});
  return parts;
}

Tensor GPT::embedded() {
  const Held tokens(weights_.get(), 0, 1), positions(weights_.get(), 1, block_part(0));
  require_present(wte), require_present(wpe);
  return embed(ids_, wte.value, wpe.value, places());
}

Tensor GPT::hidden(const Tensor& ids, Trace* trace) {
  check_ids(ids, config_.vocab_size, config_.context_length);
  require_part(kOp, sequence_.get(), ids, -1, config_.context_length);
  ids_ = batched(ids);
  Tensor x = dropout.forward(embedded());
  for (std::size_t i = 0; i < h.size(); ++i) {
    const Trace::Scope scope(trace, "h." + std::to_string(i));
    const Held held(weights_.get(), block_part(i), block_part(i + 1));
    if (i + 1 == h.size()) held.also(head_part());
    x = h[i]->forward(x, trace);
  }
  const Held held(weights_.get(), norm_part());
  return ln_f.forward(x);
}

Head GPT::output_head() {
  require_present(head());
  return {head().value, config_.precision};
}

void GPT::hidden_backward(const Tensor& d_hidden, const GradientsReady& ready) {
  const auto done = [&](const std::vector<Parameter*>& some) {
    if (ready) ready(some);
  };
  // hidden = ln_f(h[n](… h[0](dropout(wte[ids] + wpe))))
  const auto before = [&](std::size_t i) { return i > 0 ? std::optional(block_part(i - 1)) : std::nullopt; };
  Tensor dx;
  {
    const Held held(weights_.get(), norm_part(), before(h.size()));
    dx = ln_f.backward(d_hidden).x;
  }
  done(ln_f.parameters());
  for (std::size_t i = h.size(); i-- > 0;) {
    {
      const Held held(weights_.get(), block_part(i), before(i));
      dx = h[i]->backward(dx).x;
    }
    done(h[i]->parameters());
  }
  for (Parameter* p : {&wte, &wpe}) {
    if (!p->grad.defined()) p->grad = Tensor::zeros(p->value.shape());
  }
  embed_backward(dropout.backward(dx).x, ids_, wte.grad, wpe.grad, places());
  done({&wte, &wpe});
}

void GPT::train(bool on) {
  Module::train(on);
  dropout.train(on);
  for (const auto& block : h) block->train(on);
}

void GPT::set_sequence(const std::shared_ptr<SequencePart>& part) {
  sequence_ = part;
  dropout.set_sequence(part);
  for (const auto& block : h) block->set_sequence(part);
}

}  // namespace attn
