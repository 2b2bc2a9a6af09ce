// A small text, models that can read it, and a run of training.
#pragma once

#include <memory>
#include <vector>

#include "attn/gpt.hpp"
#include "attn/language_model.hpp"
#include "attn/train.hpp"
#include "core/testing.hpp"

namespace attn::test {

inline constexpr std::int64_t kVocab = 40, kContext = 8;

inline TrainText text_of(std::uint64_t seed = 1) {
  Generator drawn(seed);
  std::vector<std::int64_t> ids;
  const Tensor steps = drawn.randint(1, 3, {600});
  for (std::int64_t i = 0, at = 0; i < steps.numel(); ++i) {
    ids.push_back(at = (at + steps.data<std::int64_t>()[i]) % kVocab);
  }
  return {ids, kContext};
}

inline constexpr TrainConfig kConfig{
    .steps = 9, .batch = 12, .warmup = 2, .eval_every = 4, .lr = 0.01, .min_lr = 0.001};

inline TrainConfig reproducible() {
  TrainConfig config = kConfig;
  config.reproducible = true;
  return config;
}

inline std::unique_ptr<LanguageModel> gpt(Generator& rng, double dropout) {
  const GPTConfig config{
      .vocab_size = kVocab, .context_length = kContext, .layers = 2, .heads = 2, .width = 16, .dropout = dropout};
  return std::make_unique<GPT>(config, rng);
}

inline std::unique_ptr<LanguageModel> llama() {
  LanguageModelConfig c;
  c.vocab_size = kVocab, c.context_length = kContext, c.width = 16, c.inner_width = 24, c.heads = 2;
  c.layers.resize(2), c.ropes = {RopeConfig{.head_dim = 8}};
  auto model = std::make_unique<LanguageModel>(c);
  Generator drawn(8);
  for (Parameter* p : model->parameters()) p->value = drawn.uniform(p->value.shape(), -0.3, 0.3);
  return model;
}

// A run with a model of its own; one that resumes begins with another seed, which must not matter.
struct Trained {
  explicit Trained(const TrainConfig& config = kConfig, const TrainRanks& ranks = {}, double dropout = 0.1)
      : model(gpt(rng, dropout)), trainer(*model, rng, text, config, ranks) {}
  explicit Trained(const TrainCheckpoint& from, const TrainRanks& ranks = {})
      : rng(99, DropoutFlavour::philox), model(gpt(rng, 0.1)), trainer(*model, rng, text, from, ranks) {}

  // Returns all that must be the same, to the bit.
  std::vector<Tensor> all() {
    const auto whole = trainer.whole_weights();
    const TrainCheckpoint now = trainer.checkpoint();
    std::vector<Tensor> tensors{now.generator, Tensor::from(std::span<const double>(now.losses),
                                                            {static_cast<std::int64_t>(now.losses.size())})};
    for (const StateDict* state : {&now.weights, &now.optimizer}) {
      for (const auto& [name, tensor] : *state) tensors.push_back(tensor.clone());
    }
    for (const auto& [step, loss] : now.validations) tensors.push_back(Tensor::full({1}, loss, DType::f64));
    return tensors;
  }

  TrainText text = text_of();
  Generator rng{7, DropoutFlavour::philox};
  std::unique_ptr<LanguageModel> model;
  Trainer trainer;
};

}  // namespace attn::test
