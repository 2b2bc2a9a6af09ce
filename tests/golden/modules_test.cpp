// Every module against the same module in PyTorch, built from the seed, so that the initial weights count too.
#include "attn/modules.hpp"

#include "golden/golden.hpp"

namespace {

using namespace attn;

// PyTorch sums in float32 here, the library more widely: the difference is PyTorch's rounding.
constexpr golden::Tolerance kForward{.absolute = 1e-6, .times_largest = true};
constexpr golden::Tolerance kGradient{.absolute = 1e-5, .times_largest = true};

// A module with a backward pass, and how to run it.
struct Runner {
  std::shared_ptr<Module> module;
  bool has_gradient = true;
  Tensor x, source;

  Tensor forward() {
    if (auto* cross = dynamic_cast<CrossAttention*>(module.get())) return cross->forward(x, source, nullptr);
    return module->forward(x);
  }

  // Returns the inputs' gradients by their names in the golden file.
  std::map<std::string, Tensor> backward(const Tensor& dz) {
    if (auto* m = dynamic_cast<Linear*>(module.get())) return {{"x.grad", m->backward(dz, x)}};
    const Module::Gradient grad = module->backward(dz);
    std::map<std::string, Tensor> all{{"x.grad", grad.x}};
    if (source.defined()) all.emplace("source.grad", grad.source);
    return all;
  }
};

ModuleConfig config_of(const golden::Config& c) {
  ModuleConfig config;
  config.d_in = c.integer("d_in");
  config.d_out = c.integer("d_out");
  config.context_length = c.integer("context");
  config.dropout = c.real("dropout");
  config.num_heads = c.integer("heads");
  config.qkv_bias = c.flag("bias");
  config.causal = c.flag("causal");
  if (c.text("scale") != "default") config.scale = c.real("scale");
  config.layer_order = c.text("order") == "kqv" ? LayerOrder::kqv : LayerOrder::qkv;
  config.out_proj = c.flag("out_proj");
  return config;
}

std::shared_ptr<Module> build(const golden::Config& c, Generator& rng) {
  const ModuleConfig config = config_of(c);
  const std::string& module = c.text("module");
  if (module == "SimplifiedSelfAttention") return std::make_shared<SimplifiedSelfAttention>();
  if (module == "AveragePast") return std::make_shared<AveragePast>();
  if (module == "Linear") return std::make_shared<Linear>(config.d_in, config.d_out, config.qkv_bias, rng);
  if (module == "SelfAttentionV1") return std::make_shared<SelfAttentionV1>(config.d_in, config.d_out, rng);
  if (module == "SelfAttentionV2") return std::make_shared<SelfAttentionV2>(config, rng);
  if (module == "SelfAttentionHead") return std::make_shared<SelfAttentionHead>(config, rng);
  if (module == "CausalAttention") return std::make_shared<CausalAttention>(config, rng);
  if (module == "CrossAttention") return std::make_shared<CrossAttention>(config, rng);
  if (module == "MultiHeadAttention") return std::make_shared<MultiHeadAttention>(config, rng);
  if (module == "MultiHeadAttentionWrapper") return std::make_shared<MultiHeadAttentionWrapper>(config, rng);
  throw std::runtime_error("no module is named " + module);
}

Tensor draw(const golden::Config& c, const char* tokens, Generator& stream) {
  const std::int64_t batch = c.integer("batch"), t = c.integer(tokens), d = c.integer("d_in");
  return stream.uniform(batch == 0 ? Shape{t, d} : Shape{batch, t, d}, -1, 1);
}

void check_gradients(const golden::Case& c, Runner& run, const Tensor& dz) {
  auto found = run.backward(dz);
  for (const Parameter* p : run.module->parameters()) found.emplace(p->name + ".grad", p->grad);
  std::size_t compared = 0;
  for (const auto& [what, expected] : c.expected) {
    if (what == "output") continue;
    golden::expect_close(expected, found[what], kGradient, c, what);
    ++compared;
  }
  EXPECT_EQ(compared, found.size()) << "a gradient that PyTorch does not have, case " << c.number;
}

void replay(const golden::Case& c, DropoutFlavour flavour) {
  Generator rng(static_cast<std::uint64_t>(c.config.integer("seed")), flavour);
  Generator stream(static_cast<std::uint64_t>(c.config.integer("x_seed")));
  Runner run;
  run.module = build(c.config, rng);
  run.module->train(c.config.flag("train"));
  run.x = draw(c.config, "tokens", stream);
  if (c.name == "CrossAttention") run.source = draw(c.config, "source_tokens", stream);
  const Tensor z = run.forward();
  golden::expect_close(c.expected.at("output"), z, kForward, c, "output");
  if (c.expected.size() > 1) check_gradients(c, run, stream.uniform(z.shape(), -1, 1));
}

void replay_all(const std::string& file, const std::string& name, DropoutFlavour flavour) {
  const auto all = golden::cases(file, "module", name);
  EXPECT_GE(all.size(), file == "modules" ? 12u : 4u);
  for (const auto& c : all) replay(c, flavour);
}

class OutputsAndGradientsEqualPyTorch : public testing::TestWithParam<const char*> {};

TEST_P(OutputsAndGradientsEqualPyTorch, WithNativeDropout) {
  replay_all("modules", GetParam(), DropoutFlavour::native);
}

INSTANTIATE_TEST_SUITE_P(Modules, OutputsAndGradientsEqualPyTorch,
                         testing::Values("SimplifiedSelfAttention", "AveragePast", "Linear", "SelfAttentionV1",
                                         "SelfAttentionV2", "SelfAttentionHead", "CausalAttention", "CrossAttention",
                                         "MultiHeadAttention", "MultiHeadAttentionWrapper"),
                         [](const auto& instance) { return std::string(instance.param); });

class TrainModeEqualsPyTorch : public testing::TestWithParam<const char*> {};

TEST_P(TrainModeEqualsPyTorch, WithMklDropout) { replay_all("mkl", GetParam(), DropoutFlavour::mkl); }

INSTANTIATE_TEST_SUITE_P(Modules, TrainModeEqualsPyTorch,
                         testing::Values("CausalAttention", "CrossAttention", "MultiHeadAttention",
                                         "MultiHeadAttentionWrapper"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
