// A number that was cast to an enumeration and names none of its values is refused, by a name, before anything is
// looked up by it.
#include "attn/attn.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

// A number past every enumeration's last value, and one below the first where that can be.
template <class E>
void refuses(const char* what, const std::function<void(E)>& call) {
  std::vector<std::underlying_type_t<E>> wrong{99};
  if constexpr (std::is_signed_v<std::underlying_type_t<E>>) wrong.push_back(-1);
  for (const auto number : wrong) {
    expect_error(Error::Kind::argument, {what, "one of its enumeration's", "the number " + std::to_string(number)},
                 [&] { call(static_cast<E>(number)); });
  }
}

Generator& drawn() {
  static Generator rng(1);
  return rng;
}

TEST(Enumerations, NamesOfOtherNumbersAreUnknown) {
  EXPECT_EQ(name(static_cast<DType>(99)), "unknown");
  EXPECT_EQ(name(static_cast<DType>(255)), "unknown");
  EXPECT_EQ(name(static_cast<Precision>(99)), "unknown");
  EXPECT_EQ(name(static_cast<Precision>(-1)), "unknown");
  EXPECT_EQ(name(static_cast<DropoutFlavour>(99)), "unknown");
  EXPECT_EQ(name(static_cast<distributed::Scheme>(99)), "unknown");
  EXPECT_EQ(name(static_cast<io::GgufType>(9999)), "unknown");
  EXPECT_EQ(size_of(static_cast<DType>(99)), 0u);
  EXPECT_FALSE(is_floating(static_cast<DType>(99)));
}

TEST(Enumerations, OfTensorsAndTheOperator) {
  const Tensor x = Tensor::ones({1, 2, 3, 4});
  double memory[4] = {};
  refuses<DType>("dtype", [](DType d) { Tensor::empty({2, 2}, d); });
  refuses<DType>("dtype", [](DType d) { Tensor::zeros({0}, d); });
  refuses<DType>("dtype", [&](DType d) { x.to(d); });
  refuses<DType>("dtype", [&](DType d) { Tensor::from_blob(memory, {2}, {1}, d); });
  refuses<Align>("mask.align", [&](Align a) { attention(x, x, x, {.mask = {.is_causal = true, .align = a}}); });
  refuses<Precision>("precision", [&](Precision p) { attention(x, x, x, {.precision = p}); });
  expect_error(Error::Kind::dtype, {"unknown for float32"},
               [&] { attention(x, x, x, {.output_dtype = static_cast<DType>(99)}); });
  refuses<StateRule>("rule", [&](StateRule r) { linear_attention(x, x, x, {.rule = r}); });
  refuses<HeadMap>("heads", [&](HeadMap h) { linear_attention(x, x, x, {.heads = h}); });
  refuses<DropoutFlavour>("flavour", [](DropoutFlavour f) { Generator(1, f); });
  refuses<RopeType>("type", [](RopeType t) { rotary_frequencies({.type = t, .head_dim = 4}); });
  refuses<RotaryLayout>("layout", [](RotaryLayout l) { rotary_frequencies({.head_dim = 4, .layout = l}); });
}

TEST(Enumerations, OfModules) {
  const Tensor x = Tensor::ones({3, 4});
  refuses<NormForm>("form", [](NormForm f) { Norm(f, 4, 1e-5); });
  refuses<Activation>("activation", [&](Activation a) { gelu(x, a); });
  refuses<Activation>("activation", [&](Activation a) { gated(x, x, a); });
  refuses<Activation>("activation", [&](Activation a) { gated_backward(x, x, x, a); });
  refuses<Activation>(
      "activation", [](Activation a) { FeedForward({.width = 4, .inner_width = 4, .activation = a, .gated = true}); });
  refuses<GatedNormOrder>("order",
                          [&](GatedNormOrder o) { GatedNorm(4, 1e-5, {}, Activation::silu, o).forward(x, x); });
  ModuleConfig config;
  config.d_in = config.d_out = 4;
  const auto module = [&](auto change) {
    ModuleConfig changed = config;
    change(changed);
    MultiHeadAttention(changed, drawn());
  };
  refuses<LayerOrder>("layer_order", [&](auto e) { module([e](ModuleConfig& c) { c.layer_order = e; }); });
  refuses<QueryKeyNorm>("query_key_norm", [&](auto e) { module([e](ModuleConfig& c) { c.query_key_norm = e; }); });
  refuses<NormForm>("norm", [&](auto e) { module([e](ModuleConfig& c) { c.norm = e; }); });
  refuses<Precision>("precision", [&](auto e) { module([e](ModuleConfig& c) { c.precision = e; }); });
  refuses<RecurrentLayer::Kind>("kind", [&](auto e) { RecurrentLayer(e, config, drawn()); });
}

TEST(Enumerations, OfModelsAndTheirFiles) {
  const auto model = [](auto change) {
    LanguageModelConfig config = language_model_config({.vocab_size = 4, .context_length = 4, .layers = 1, .width = 6});
    change(config);
    LanguageModel(config, drawn());
  };
  refuses<Mixer>("mixer", [&](auto e) { model([e](LanguageModelConfig& c) { c.layers.front().mixer = e; }); });
  refuses<Activation>("activation", [&](auto e) { model([e](LanguageModelConfig& c) { c.activation = e; }); });
  refuses<NormForm>("form", [&](auto e) { model([e](LanguageModelConfig& c) { c.norm = e; }); });
  refuses<Precision>("precision", [&](auto e) { model([e](LanguageModelConfig& c) { c.precision = e; }); });
  refuses<Pooling>("pooling", [](Pooling p) { pool(Tensor::ones({2, 3}), p, false); });
  refuses<By>("by", [](auto by) { without({0, 0}, by); });
  refuses<Weights>("weights", [](auto weights) { reweigh({0, 0}, weights); });
}

TEST(Enumerations, OfFigures) {
  const Tensor w = Tensor::ones({2, 2});
  refuses<figure::Scale>("scale", [&](figure::Scale s) { figure::heatmap(w, {.scale = s}); });
  refuses<figure::Colours>("colours", [&](figure::Colours c) { figure::heatmap(w, {.colours = c}); });
}

}  // namespace
}  // namespace attn::test
