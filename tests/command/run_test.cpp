// attn run: the digits of the notebooks, files in and out.
#include "attn/modules.hpp"
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

// ---- every module, as printed in the notebooks ------------------------------------------

TEST_F(Run, SimpleAsNotebook000) {
  EXPECT_EQ(out_of("attn run simple --input x.csv"),
            "tensor([[0.4421, 0.5931, 0.5790],\n"
            "        [0.4419, 0.6515, 0.5683],\n"
            "        [0.4431, 0.6496, 0.5671],\n"
            "        [0.4304, 0.6298, 0.5510],\n"
            "        [0.4671, 0.5910, 0.5266],\n"
            "        [0.4177, 0.6503, 0.5645]])\n");
}

TEST_F(Run, AverageAsNotebook003) {
  EXPECT_EQ(out_of("printf '2,7\\n6,4\\n6,5\\n' | attn run average --input -"),
            "tensor([[2.0000, 7.0000],\n"
            "        [4.0000, 5.5000],\n"
            "        [4.6667, 5.3333]])\n");
}

TEST_F(Run, SelfV1AsNotebook000) {
  EXPECT_EQ(out_of("attn run self-v1 --input x.csv --d-out 2"),
            "tensor([[0.2996, 0.8053],\n"
            "        [0.3061, 0.8210],\n"
            "        [0.3058, 0.8203],\n"
            "        [0.2948, 0.7939],\n"
            "        [0.2927, 0.7891],\n"
            "        [0.2990, 0.8040]])\n");
}

TEST_F(Run, SelfV2AsNotebook002) {
  EXPECT_EQ(out_of("attn run self-v2 --input x.csv --d-out 2 --seed 789"),
            "tensor([[-0.0739,  0.0713],\n"
            "        [-0.0748,  0.0703],\n"
            "        [-0.0749,  0.0702],\n"
            "        [-0.0760,  0.0685],\n"
            "        [-0.0763,  0.0679],\n"
            "        [-0.0754,  0.0693]])\n");
}

TEST_F(Run, SelfV2DrawnKqvAsNotebook001) {
  EXPECT_THAT(out_of("attn run self-v2 --input x.csv --d-out 2 --layer-order kqv"),
              StartsWith("tensor([[-0.5300, -0.0988],\n        [-0.5317, -0.1005],\n"));
}

TEST_F(Run, HeadAsNotebook003) {
  Generator rng(1337);
  io::save_npy(path("x.npy"), rng.randn({4, 8, 32}));
  SelfAttentionHead head({.d_in = 32, .d_out = 16}, rng);  // the notebook goes on with one stream
  io::NamedTensors weights;
  for (const auto& [name, tensor] : head.state_dict()) weights.tensors.emplace_back(name, tensor);
  io::save_safetensors(path("w.safetensors"), weights);
  out_of("attn run head --input x.npy --d-out 16 --weights w.safetensors --output z.npy --save-steps s.safetensors");
  const Tensor z = io::load_tensor(path("z.npy")), w = io::load_tensor(path("s.safetensors"), "weights");
  EXPECT_NEAR(z.at({0, 0, 0}), -0.1571, 5.1e-5);
  EXPECT_NEAR(z.at({0, 1, 15}), 1.2716, 5.1e-5);
  EXPECT_NEAR(w.at({0, 1, 0}), 0.1574, 5.1e-5);
  EXPECT_NEAR(w.at({0, 7, 7}), 0.2391, 5.1e-5);
}

TEST_F(Run, HeadIsDrawnKqvUnlessTold) {
  const std::string by_default = out_of("attn run head --input x.csv --d-out 2");
  EXPECT_EQ(by_default, out_of("attn run head --input x.csv --d-out 2 --layer-order kqv"));
  EXPECT_EQ(by_default, out_of("attn run causal --input x.csv --d-out 2 --layer-order kqv --scale none"));
  EXPECT_EQ(out_of("attn run head --input x.csv --d-out 2 --layer-order qkv"),
            out_of("attn run causal --input x.csv --d-out 2 --scale 1"));
}

constexpr const char* kCausal =
    "tensor([[-0.4519,  0.2216],\n"
    "        [-0.5874,  0.0058],\n"
    "        [-0.6300, -0.0632],\n"
    "        [-0.5675, -0.0843],\n"
    "        [-0.5526, -0.0981],\n"
    "        [-0.5299, -0.1081]])\n";

TEST_F(Run, CausalAsNotebook002) { EXPECT_EQ(out_of("attn run causal --input x.csv --d-out 2"), kCausal); }

TEST_F(Run, CausalDrawnKqvIsTheMaskedResultOfNotebook001) {
  EXPECT_EQ(out_of("attn run causal --input x.csv --d-out 2 --layer-order kqv"),
            "tensor([[-0.4519,  0.2216],\n"
            "        [-0.5790,  0.0192],\n"
            "        [-0.6226, -0.0512],\n"
            "        [-0.5669, -0.0793],\n"
            "        [-0.5501, -0.0919],\n"
            "        [-0.5307, -0.1042]])\n");
}

TEST_F(Run, CausalWithoutMaskIsWhatNotebook001Prints) {
  EXPECT_THAT(out_of("attn run causal --input batch.npy --d-out 2 --layer-order kqv --no-mask"),
              StartsWith("tensor([[[-0.5300, -0.0988],\n         [-0.5317, -0.1005],\n"));
}

TEST_F(Run, HeadsAsNotebook002) {
  const std::string text = out_of("attn run heads --input batch.npy --d-out 2");
  EXPECT_THAT(text, StartsWith("tensor([[[-0.4519,  0.2216,  0.4772,  0.1063],\n"
                               "         [-0.5874,  0.0058,  0.5891,  0.3257],\n"));
  EXPECT_THAT(text, HasSubstr("         [-0.5299, -0.1081,  0.5077,  0.3493]]])\n"));
}

TEST_F(Run, MultiHeadAsNotebook002) {
  EXPECT_THAT(out_of("attn run multihead --input batch.npy --d-out 2"), StartsWith("tensor([[[0.3190, 0.4858],\n"
                                                                                   "         [0.2943, 0.3897],\n"
                                                                                   "         [0.2856, 0.3593],\n"
                                                                                   "         [0.2693, 0.3873],\n"
                                                                                   "         [0.2639, 0.3928],\n"
                                                                                   "         [0.2575, 0.4028]],\n"));
}

TEST_F(Run, HandRolledHeadsAsNotebook001) {
  EXPECT_EQ(out_of("attn run multihead --input x.csv --d-out 2 --no-mask --no-out-proj"),
            "tensor([[-0.5354, -0.1019],\n"
            "        [-0.5343, -0.1065],\n"
            "        [-0.5343, -0.1064],\n"
            "        [-0.5307, -0.1072],\n"
            "        [-0.5322, -0.1052],\n"
            "        [-0.5311, -0.1077]])\n");
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

TEST_F(Run, ScaleAndBiasChangeTheResult) {
  const std::string plain = out_of("attn run self-v2 --input x.csv");
  EXPECT_NE(plain, out_of("attn run self-v2 --input x.csv --scale -0.5"));
  EXPECT_NE(plain, out_of("attn run self-v2 --input x.csv --qkv-bias"));
  EXPECT_EQ(out_of("attn run self-v2 --input x.csv --scale none"), out_of("attn run self-v2 --input x.csv --scale 1"));
}

TEST_F(Run, SeedsCountByTheirLow32Bits) {
  EXPECT_EQ(out_of("attn run causal --input x.csv --seed -1"),
            out_of("attn run causal --input x.csv --seed 4294967295"));
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
  weights.tensors.emplace_back("mask", Tensor::ones({6, 6}));
  io::save_safetensors(path("w.safetensors"), weights);
  EXPECT_EQ(out_of("attn run causal --input x.csv --d-out 2 --weights w.safetensors"), kCausal);
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

TEST_F(Run, AnExistingOutputKeepsItsPermissionsAndLinks) {
  write("real.npy", "old");
  std::filesystem::permissions(path("real.npy"), std::filesystem::perms(0640));
  std::filesystem::create_symlink("real.npy", path("link.npy"));
  out_of("attn run simple --input x.csv --output link.npy");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.npy")));
  EXPECT_EQ(std::filesystem::status(path("real.npy")).permissions(), std::filesystem::perms(0640));
  EXPECT_EQ(io::load_tensor(path("real.npy")).shape(), (Shape{6, 3}));
}

}  // namespace
}  // namespace attn::test
