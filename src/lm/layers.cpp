#include "attn/layers.hpp"

#include <string>

#include "attn/error.hpp"
#include "lm/names.hpp"
#include "ops/embedding.hpp"

namespace attn {
namespace {

Tensor one_text(const Tensor& ids, const LanguageModelConfig& config) {
  check_ids(ids, config.vocab_size, config.context_length);
  if (ids.rank() != 1) throw Error(Error::Kind::shape, "read_layers", "ids (tokens)", ids.shape().str());
  return ids.unsqueeze(0).contiguous();
}

// turns: the rotary table of a layer
template <class Turns>
void run(const std::vector<std::unique_ptr<Block>>& blocks, std::string_view prefix, Tensor x, const Turns& turns,
         const std::set<std::size_t>& wanted, const LayerSteps& each) {
  if (!each) throw Error(Error::Kind::argument, "read_layers", "a function for each layer", "none");
  if (!wanted.empty() && *wanted.rbegin() >= blocks.size()) {
    throw Error(Error::Kind::argument, "read_layers", "layers from 0 to " + std::to_string(blocks.size() - 1),
                std::to_string(*wanted.rbegin()));
  }
  const NoGrad no_grad;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const bool shown = wanted.empty() || wanted.contains(i);
    Trace steps;
    {
      const Trace::Scope scope(&steps, std::string(prefix) + std::to_string(i));
      x = blocks[i]->forward(x, turns(i), shown ? &steps : nullptr);
    }
    if (shown) each(i, steps);
  }
}

}  // namespace

void read_layers(LanguageModel& model, const Tensor& ids, const std::set<std::size_t>& wanted, const LayerSteps& each) {
  const LanguageModelConfig& c = model.config();
  const Tensor text = one_text(ids, c);
  Tensor x = embed(text, model.embedding, c.embedding_scale);
  if (c.learned_positions) add_positions(x, model.positions, {});
  std::vector<RotaryTable> turns;
  for (const RopeConfig& rope : c.ropes) {
    turns.push_back(rotary_table(rotary_frequencies(rope, text.size(1)), text.size(1)));
  }
  const auto of_layer = [&](std::size_t i) { return c.layers[i].rope ? turns[*c.layers[i].rope] : RotaryTable{}; };
  run(model.blocks, names_of(c.family).blocks, x, of_layer, wanted, each);
}

void read_layers(Encoder& encoder, const Tensor& ids, const std::set<std::size_t>& wanted, const LayerSteps& each) {
  const Tensor text = one_text(ids, encoder.config().model);
  Tensor x = embed(text, encoder.words, 1);
  add_positions(x, encoder.types, Tensor::zeros({text.size(1)}, DType::i64));
  add_positions(x, encoder.positions, {});
  x = encoder.norm.forward(x, DType::f32);
  run(
      encoder.blocks, kBertNames.blocks, x, [](std::size_t) { return RotaryTable{}; }, wanted, each);
}

}  // namespace attn
