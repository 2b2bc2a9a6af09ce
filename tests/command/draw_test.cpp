// Random inputs, weights and dropout of one stream: what the notebooks print after torch.manual_seed.
#include "attn/modules.hpp"
#include "attn/print.hpp"
#include "command/command.hpp"

namespace attn::test {
namespace {

class Draw : public Command {};

// The draws are those of notebook 003, whose numbers attn check compares.
TEST_F(Draw, AnInputAndThenItsHead) {
  const std::string flags = " head --input randn:4,8,32 --d-out 16 --seed 1337 ";
  Generator rng(1337);
  const Tensor x = rng.randn({4, 8, 32});
  Trace steps;
  SelfAttentionHead({.d_in = 32, .d_out = 16}, rng).forward(x, &steps);
  for (const char* step : {"weights", "context"}) {
    EXPECT_THAT(out_of("attn show" + flags + "--numbers --step " + step),
                HasSubstr(to_string(steps[step].select(0, 0))));
  }
  EXPECT_THAT(out_of("attn run" + flags + "--output z.npy"), HasSubstr("(4, 8, 32) → (4, 8, 16)"));
  out_of("attn explain" + flags);
  out_of("attn report" + flags);
}

TEST_F(Draw, Integers) {
  EXPECT_EQ(out_of("attn run average --input randint:0,10:3,2 --seed 42"),
            "tensor([[2.0000, 7.0000],\n        [4.0000, 5.5000],\n        [4.6667, 5.3333]])\n");
  EXPECT_EQ(out_of("attn draw randint:0,10:3,2 --seed 42"), "tensor([[2, 7],\n        [6, 4],\n        [6, 5]])\n");
}

TEST_F(Draw, ASeedThatDrawsNothingIsRefused) {
  refused("attn draw ones:2 --seed 3", 2, {"[--seed]", "ones:2"});
  refused("printf '1,2' | attn draw - --seed 3", 2, {"[--seed]"});
  EXPECT_EQ(out_of("attn draw ones:2 --seed 3 --dropout 1"), "tensor([0., 0.])\n");
}

TEST_F(Draw, TheDropoutOfNotebook002) {
  for (const auto flavour : {DropoutFlavour::mkl, DropoutFlavour::native}) {
    Generator rng(123, flavour);
    const Tensor twice = rng.dropout_keep({6, 6}, 0.5).to(DType::f32);
    for (std::int64_t i = 0; i < 36; ++i) twice.data<float>()[i] *= 2;
    EXPECT_EQ(out_of("attn draw ones:6,6 --dropout 0.5 --rng " + std::string(name(flavour))), to_string(twice) + "\n");
  }
  out_of("attn run causal --seed 789 --save-steps steps.safetensors");
  EXPECT_THAT(out_of("attn draw steps.safetensors --tensor weights --dropout 0.5"),
              HasSubstr("[0.5517, 0.4921, 0.0000, 0.0000, 0.0000, 0.0000]"));
}

// The context is drawn after the input, and the weights after both.
TEST_F(Draw, OneStreamForInputsAndWeights) {
  out_of("attn draw rand:9,3 --seed 7 --output all.npy");
  const Tensor all = io::load_tensor(path("all.npy"));
  io::save_npy(path("x.npy"), all.slice(0, 0, 4).clone());
  io::save_npy(path("y.npy"), all.slice(0, 4, 9).clone());
  out_of(
      "attn run cross --input rand:4,3 --context rand:5,3 --d-out 2 --seed 7 --save-weights w.safetensors --output "
      "a.npy");
  out_of("attn run cross --input x.npy --context y.npy --d-out 2 --weights w.safetensors --output b.npy");
  EXPECT_EQ(difference(io::load_tensor(path("a.npy")), io::load_tensor(path("b.npy"))), 0);
  out_of("attn run self-v1 --input rand:3,3 --d-out 3 --seed 7 --save-weights v1.safetensors");
  const io::NamedTensors weights = io::load(path("v1.safetensors"));
  EXPECT_EQ(difference(*weights.find("W_query"), all.slice(0, 3, 6)), 0);
}

TEST_F(Draw, AFileOfThatNameIsReadByItsPath) {
  write("ones:2,2", "3,4\n");
  EXPECT_EQ(out_of("attn draw ./ones:2,2"), "tensor([[3., 4.]])\n");
  EXPECT_EQ(out_of("attn draw ones:2,2"), "tensor([[1., 1.],\n        [1., 1.]])\n");
  EXPECT_EQ(out_of("attn draw ones:0,2"), out_of("attn run simple --input ones:0,2"));
}

TEST_F(Draw, Refuses) {
  for (const char* sizes : {"", "2,", ",2", "2,-1", "2x3", "99999999999999999999", "1,1,1,1,1,1,1,1,1", "2 3", "1.5"}) {
    refused(std::string("attn draw 'randn:") + sizes + "'", 2, {"[WHAT] expected up to eight sizes of at least 0", "randn:4,8,32"});
  }
  for (const char* range : {"", ":3", "5:3", "3,3:2", "4,1:2", "0,10:", "0,10", "a,b:2"}) {
    refused(std::string("attn run simple --input 'randint:") + range + "'", 2, {"[--input]", "LOW below HIGH"});
  }
  refused("attn draw randn:99999999,99999999", 2, {"[memory]"});
  refused("attn run simple --input randn:2,2 --tensor x", 2, {"--tensor"});
  refused("attn draw ones:2 --dropout 1.5", 2, {"--dropout"});
  refused("attn draw ones:2 --dropout nan", 2, {"--dropout"});
  EXPECT_EQ(run("attn run causal --input randn:4").status, 3);  // a shape, as of a file
  refused("attn run average --seed 3", 2, {"--seed"});          // nothing is drawn
  EXPECT_EQ(run("attn draw randn").status, 3);                  // a file
}

}  // namespace
}  // namespace attn::test
