// attn run: flags, files in and out.
#include "attn/module_kinds.hpp"
#include "attn/modules.hpp"
#include "attn/print.hpp"
#include "command/command.hpp"

namespace attn::test {
namespace {

using testing::ElementsAre;

class Run : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    write_six_words();
  }
  std::vector<std::string> names_in(const std::string& file) const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : io::load(path(file)).tensors) names.push_back(name);
    return names;
  }
};

// ---- every module ---------------------------------------------------------------------------

constexpr const char* kCausal =
    "tensor([[-0.4519,  0.2216],\n"
    "        [-0.5874,  0.0058],\n"
    "        [-0.6300, -0.0632],\n"
    "        [-0.5675, -0.0843],\n"
    "        [-0.5526, -0.0981],\n"
    "        [-0.5299, -0.1081]])\n";

TEST_F(Run, CausalAsNotebook002) { EXPECT_EQ(out_of("attn run causal --input x.csv --d-out 2"), kCausal); }

// attn check compares the modules with all notebooks.
TEST_F(Run, FlagsAreTheModulesConfig) {
  const Tensor batch = io::load_tensor(path("batch.npy"));
  const auto expect = [&](const std::string& line, ModuleConfig config, std::uint64_t seed = 123) {
    config.d_in = 3, config.d_out = 2;
    Generator rng(seed);
    const auto module = module_kind(line.substr(0, line.find(' '))).make(config, rng);
    const std::string size = line.starts_with("simple") || line.starts_with("average") ? "" : " --d-out 2";
    EXPECT_EQ(out_of("attn run " + line + size + " --input batch.npy"), to_string(module->forward(batch)) + "\n")
        << line;
  };
  constexpr auto qkv = LayerOrder::qkv, kqv = LayerOrder::kqv;
  expect("simple", {});
  expect("average", {});
  expect("self-v1", {});
  expect("self-v2 --seed 789", {}, 789);
  expect("self-v2 --layer-order kqv", {.layer_order = kqv});
  expect("self-v2 --qkv-bias --scale -0.5", {.qkv_bias = true, .scale = -0.5});
  expect("self-v2 --scale none", {.scale = 1});
  expect("head", {.layer_order = kqv});
  expect("head --layer-order qkv", {.layer_order = qkv});
  expect("causal --layer-order kqv --no-mask", {.causal = false, .layer_order = kqv});
  expect("causal --seed -1", {}, 4294967295);  // low 32 bits count
  expect("heads", {.num_heads = 2});
  expect("multihead", {.num_heads = 2});
  expect("multihead --no-mask --no-out-proj --heads 1", {.causal = false, .out_proj = false});
}

TEST_F(Run, CrossWithItselfIsUnmaskedMultiHead) {
  const std::string self = out_of("attn run multihead --input x.csv --d-out 2 --heads 1 --no-mask");
  EXPECT_EQ(self, out_of("attn run cross --input x.csv --context x.csv --d-out 2"));
  EXPECT_NE(self, out_of("head -3 x.csv > y.csv; attn run cross --input x.csv --context y.csv --d-out 2"));
}

// ---- flags --------------------------------------------------------------------------------

TEST_F(Run, DropoutActsInTrainModeAndByFlavour) {
  const Ran eval = run("attn run causal --input x.csv --d-out 2 --dropout 0.5");
  EXPECT_EQ(eval.out, kCausal);
  EXPECT_THAT(eval.err, HasSubstr("--train"));
  const std::string train = "attn run causal --input x.csv --d-out 2 --dropout 0.5 --train --save-steps s.safetensors";
  for (const auto flavour : {DropoutFlavour::mkl, DropoutFlavour::native}) {
    out_of(train + " --rng " + std::string(name(flavour)));
    Generator rng(123, flavour);
    const CausalAttention drawn({.d_in = 3, .d_out = 2}, rng);  // dropout draws after the weights
    const Tensor keep = rng.dropout_keep({6, 6}, 0.5);
    const Tensor before = io::load_tensor(path("s.safetensors"), "weights");
    const Tensor after = io::load_tensor(path("s.safetensors"), "dropped");
    for (std::int64_t i = 0; i < 6; ++i) {
      for (std::int64_t j = 0; j < 6; ++j) {
        EXPECT_EQ(after.at({i, j}), keep.at({i, j}) * 2 * before.at({i, j})) << name(flavour) << i << j;
      }
    }
  }
}

TEST_F(Run, TokensLabelRows) {
  const std::string text = out_of("attn run causal --input x.csv --d-out 2 --tokens words.txt");
  EXPECT_THAT(text, HasSubstr("[-0.5874,  0.0058],  # journey\n"));
  EXPECT_THAT(text, HasSubstr("[-0.5299, -0.1081]])  # step\n"));
}

TEST_F(Run, LabelsFollowTheRowsOfASummarisedTensor) {
  std::string rows, words;
  for (int i = 0; i < 600; ++i) {
    rows += std::to_string(i) + ",0\n";
    words += "w" + std::to_string(i) + "\n";
  }
  write("long.csv", rows);
  write("long.txt", words);
  const std::string text = out_of("attn run average --input long.csv --tokens long.txt");
  for (const char* label : {"# w0\n", "# w2\n", "# w597\n", "# w599\n"}) EXPECT_THAT(text, HasSubstr(label));
  EXPECT_THAT(text, testing::Not(HasSubstr("# w3\n")));
}

// ---- files ----------------------------------------------------------------------------------

TEST_F(Run, OutputFormatsHoldTheSame) {
  for (const std::string file : {"z.npy", "z.npz", "z.safetensors", "z.csv"}) {
    EXPECT_THAT(out_of("attn run causal --input x.csv --d-out 2 --output " + file), HasSubstr("wrote " + file));
    EXPECT_EQ(out_of("attn run average --input " + file), out_of("attn run average --input z.npy")) << file;
  }
}

TEST_F(Run, SummaryTellsShapesAndFiles) {
  const std::string text = out_of("attn run causal --input batch.npy --d-out 2 --output z.npy");
  EXPECT_THAT(text, HasSubstr("(2, 6, 3) → (2, 6, 2)"));
  EXPECT_THAT(text, HasSubstr("wrote z.npy"));
}

TEST_F(Run, StandardOutputTakesTheTensorAndStandardErrorTheSummary) {
  const Ran ran = run("attn run causal --input x.csv --d-out 2 --output - > z.npy");
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.err, HasSubstr("(6, 3) → (6, 2)"));
  EXPECT_EQ(io::load_tensor(path("z.npy")).shape(), (Shape{6, 2}));
  EXPECT_EQ(out_of("attn run simple --input x.csv --output - | attn run simple --input -"),
            out_of("attn run simple --input x.csv --output z.npy >&2; attn run simple --input z.npy"));
}

TEST_F(Run, OneOfSeveralTensorsByName) {
  const Tensor x = io::load_tensor(path("x.csv"));
  io::NamedTensors two;
  two.tensors = {{"other", Tensor::ones({2, 2})}, {"x", x}};
  io::save_npz(path("two.npz"), two);
  EXPECT_EQ(out_of("attn run causal --input two.npz --tensor x --d-out 2"), kCausal);
}

TEST_F(Run, WeightsComeBack) {
  for (const std::string module : {"self-v1", "self-v2", "head", "causal", "heads", "multihead"}) {
    const std::string base = "attn run " + module + " --input x.csv --d-out 2 ";
    out_of(base + "--seed 7 --save-weights w.safetensors --output a.npy");
    out_of(base + "--weights w.safetensors --output b.npy");
    out_of(base + "--seed 8 --output c.npy");
    EXPECT_EQ(read(path("a.npy")), read(path("b.npy"))) << module;
    EXPECT_NE(read(path("a.npy")), read(path("c.npy"))) << module;
  }
}

TEST_F(Run, WeightsAreNamedAndShapedAsInPyTorch) {
  const auto shapes = [&](const std::string& flags) {
    out_of("attn run " + flags + " --input x.csv --d-out 4 --save-weights w.safetensors --output z.npy");
    std::vector<std::string> all;
    for (const auto& [name, tensor] : io::load(path("w.safetensors")).tensors)
      all.push_back(name + tensor.shape().str());
    return all;
  };
  EXPECT_THAT(shapes("self-v1"), ElementsAre("W_query(3, 4)", "W_key(3, 4)", "W_value(3, 4)"));
  EXPECT_THAT(shapes("causal --qkv-bias"), ElementsAre("W_query.weight(4, 3)", "W_query.bias(4,)", "W_key.weight(4, 3)",
                                                       "W_key.bias(4,)", "W_value.weight(4, 3)", "W_value.bias(4,)"));
  EXPECT_THAT(shapes("heads"), ElementsAre("heads.0.W_query.weight(4, 3)", "heads.0.W_key.weight(4, 3)",
                                           "heads.0.W_value.weight(4, 3)", "heads.1.W_query.weight(4, 3)",
                                           "heads.1.W_key.weight(4, 3)", "heads.1.W_value.weight(4, 3)"));
  EXPECT_THAT(shapes("multihead"), ElementsAre("W_query.weight(4, 3)", "W_key.weight(4, 3)", "W_value.weight(4, 3)",
                                               "out_proj.weight(4, 4)", "out_proj.bias(4,)"));
}

TEST_F(Run, MaskBuffersOfAStateDictAreAllowed) {
  out_of("attn run causal --input x.csv --d-out 2 --save-weights w.safetensors");
  io::NamedTensors weights = io::load(path("w.safetensors"));
  Tensor mask = Tensor::zeros({6, 6});
  for (std::int64_t i = 0; i < 6; ++i) mask.select(0, i).slice(0, i + 1, 6).fill(1);
  weights.tensors.emplace_back("mask", mask);
  io::save_safetensors(path("w.safetensors"), weights);
  EXPECT_EQ(out_of("attn run causal --input x.csv --d-out 2 --weights w.safetensors"), kCausal);
  mask.fill(1);
  io::save_safetensors(path("w.safetensors"), weights);
  refused("attn run causal --input x.csv --d-out 2 --weights w.safetensors", 3, {"mask that hides the keys after each"});
}

TEST_F(Run, StepsAreSavedByName) {
  out_of("attn run causal --input x.csv --d-out 2 --tokens words.txt --save-steps s.safetensors");
  const auto names = names_in("s.safetensors");
  for (const char* step : {"inputs", "queries", "keys", "values", "scores", "scaled", "masked", "weights", "context"}) {
    EXPECT_THAT(names, testing::Contains(step));
  }
  const auto metadata = io::load(path("s.safetensors")).metadata;
  EXPECT_EQ(metadata.at("module"), "causal");
  EXPECT_EQ(metadata.at("seed"), "123");
  EXPECT_EQ(metadata.at("rng"), "mkl");
  EXPECT_EQ(metadata.at("tokens"), "Your\njourney\nstarts\nwith\none\nstep");
  EXPECT_THAT(metadata.at("command"), StartsWith("attn run causal --input x.csv"));
  EXPECT_FALSE(metadata.at("attn").empty());
}

TEST_F(Run, JsonTellsAll) {
  const json report = json::parse(out_of("attn run multihead --input batch.npy --d-out 2 --output z.npy --json"));
  EXPECT_EQ(report["module"], "multihead");
  EXPECT_EQ(report["shapes"]["input"], json({2, 6, 3}));
  EXPECT_EQ(report["shapes"]["output"], json({2, 6, 2}));
  EXPECT_EQ(report["seed"], 123);
  EXPECT_EQ(report["rng"], "mkl");
  EXPECT_EQ(report["parameters"]["out_proj.weight"], json({2, 2}));
  EXPECT_EQ(report["files"], json({"z.npy"}));
  EXPECT_EQ(report["nonfinite"]["input"]["nan"], 0);
}

TEST_F(Run, JsonHoldsTheResultWhenNoFileDoes) {
  const json report = json::parse(out_of("printf 'nan,1\\n2,3\\n' | attn run average --input - --json"));
  EXPECT_EQ(report["output"], json::parse(R"([["nan", 1.0], ["nan", 2.0]])"));
  EXPECT_EQ(report["nonfinite"]["input"]["nan"], 1);
  EXPECT_EQ(report["nonfinite"]["output"]["nan"], 2);
}

TEST_F(Run, NanIsPassedThroughAndSaidSo) {
  write("nan.csv", "nan,1\n2,inf\n3,nan\n");
  EXPECT_THAT(run("attn run average --input nan.csv").err, HasSubstr("nan.csv holds 2 NaN and 1 inf: passed through"));
  const std::string summary = out_of("attn run average --input nan.csv --output z.npy");
  EXPECT_THAT(summary, HasSubstr("nan.csv holds 2 NaN and 1 inf: passed through"));
  EXPECT_THAT(summary, HasSubstr("the output holds"));
}

TEST_F(Run, NumbersBeyondFloat32AreNotBlamedOnTheFile) {
  Tensor x = Tensor::ones({3, 2}).to(DType::f64);
  x.data<double>()[0] = 1e300;
  x.data<double>()[3] = std::numeric_limits<double>::infinity();
  io::save_npy(path("large.npy"), x);
  const std::string told = run("attn run average --input large.npy").err;
  EXPECT_THAT(told, HasSubstr("large.npy holds 1 inf: passed through"));
  EXPECT_THAT(told, HasSubstr("large.npy holds 1 number beyond float32's largest"));
}

TEST_F(Run, OtherDtypesBecomeFloat32AndThatIsSaid) {
  const Tensor x = io::load_tensor(path("x.csv"));
  for (const DType dtype : {DType::f64, DType::f16, DType::i64}) {
    io::save_npy(path("other.npy"), x.to(dtype));
    const Ran ran = run("attn run simple --input other.npy");
    EXPECT_EQ(ran.status, 0);
    EXPECT_THAT(ran.err, HasSubstr("other.npy is " + std::string(name(dtype)) + ": converted to float32"));
  }
  io::save_npy(path("other.npy"), x.to(DType::f64));
  EXPECT_EQ(out_of("attn run causal --input other.npy --d-out 2"), kCausal);
}

TEST_F(Run, NoTokensGiveNoRows) {
  io::save_npy(path("none.npy"), Tensor::zeros({0, 3}));
  for (const std::string module : {"simple", "average", "self-v1", "causal", "heads"}) {
    EXPECT_EQ(out_of("attn run " + module + " --input none.npy | tr -d '\n'"),
              module == "heads" ? "tensor([], size=(0, 6))" : "tensor([], size=(0, 3))");
  }
}

}  // namespace
}  // namespace attn::test
