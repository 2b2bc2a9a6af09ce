// Random inputs, weights and dropout of one stream: what the notebooks print after torch.manual_seed.
#include "command/command.hpp"

namespace attn::test {
namespace {

class Draw : public Command {
 protected:
  void refused(const std::string& line, const std::vector<std::string>& texts) const {
    const Ran ran = run(line);
    EXPECT_EQ(ran.status, 2) << line;
    for (const std::string& text : texts) EXPECT_THAT(ran.err, HasSubstr(text)) << line;
  }
};

TEST_F(Draw, TheHeadOfNotebook003) {
  const std::string flags = " head --input randn:4,8,32 --d-out 16 --seed 1337 ";
  EXPECT_THAT(out_of("attn show" + flags + "--numbers"),
              HasSubstr("tensor([[1.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],\n"
                        "        [0.1574, 0.8426, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],\n"
                        "        [0.2088, 0.1646, 0.6266, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],\n"
                        "        [0.5792, 0.1187, 0.1889, 0.1131, 0.0000, 0.0000, 0.0000, 0.0000],\n"
                        "        [0.0294, 0.1052, 0.0469, 0.0276, 0.7909, 0.0000, 0.0000, 0.0000],\n"
                        "        [0.0176, 0.2689, 0.0215, 0.0089, 0.6812, 0.0019, 0.0000, 0.0000],\n"
                        "        [0.1691, 0.4066, 0.0438, 0.0416, 0.1048, 0.2012, 0.0329, 0.0000],\n"
                        "        [0.0210, 0.0843, 0.0555, 0.2297, 0.0573, 0.0709, 0.2423, 0.2391]])\n"));
  const std::string output = out_of("attn show" + flags + "--numbers --step context");
  EXPECT_THAT(output, HasSubstr("tensor([[-0.1571,  0.8801,  0.1615, -0.7824, -0.1429,  0.7468,  0.1007, -0.5239,\n"
                                "         -0.8873,  0.1907,  0.1762, -0.5943, -0.4812, -0.4860,  0.2862,  0.5710],\n"));
  EXPECT_THAT(output, HasSubstr("        [ 0.1301, -0.0328, -0.4965,  0.2865,  0.2704, -0.2636, -0.0738,  0.3786,\n"
                                "          0.0746,  0.0338,  0.0147,  0.3194,  0.2993, -0.1653, -0.0386,  0.3375]])"));
  EXPECT_THAT(out_of("attn run" + flags + "--output z.npy"), HasSubstr("(4, 8, 32) → (4, 8, 16)"));
  out_of("attn explain" + flags);
  out_of("attn report" + flags);
}

TEST_F(Draw, TheAveragesOfNotebook003) {
  EXPECT_THAT(out_of("attn show average --input randn:4,8,2 --seed 1337 --step context --numbers"),
              HasSubstr("tensor([[ 0.1808, -0.0700],\n"
                        "        [-0.0894, -0.4926],\n"
                        "        [ 0.1490, -0.3199],\n"
                        "        [ 0.3504, -0.2238],\n"
                        "        [ 0.3525,  0.0545],\n"
                        "        [ 0.0688, -0.0396],\n"
                        "        [ 0.0927, -0.0682],\n"
                        "        [-0.0341,  0.1332]])\n"));
  EXPECT_EQ(out_of("attn run average --input randint:0,10:3,2 --seed 42"),
            "tensor([[2.0000, 7.0000],\n        [4.0000, 5.5000],\n        [4.6667, 5.3333]])\n");
  EXPECT_EQ(out_of("attn draw randint:0,10:3,2 --seed 42"), "tensor([[2, 7],\n        [6, 4],\n        [6, 5]])\n");
}

TEST_F(Draw, TheDropoutOfNotebook002) {
  EXPECT_EQ(out_of("attn draw ones:6,6 --dropout 0.5"),
            "tensor([[2., 2., 2., 2., 2., 2.],\n"
            "        [0., 2., 0., 0., 0., 0.],\n"
            "        [0., 0., 2., 0., 2., 0.],\n"
            "        [2., 2., 0., 0., 0., 2.],\n"
            "        [2., 0., 0., 0., 0., 2.],\n"
            "        [0., 2., 0., 0., 0., 0.]])\n");
  out_of("attn run causal --seed 789 --save-steps steps.safetensors");
  EXPECT_THAT(out_of("attn draw steps.safetensors --tensor weights --dropout 0.5"),
              HasSubstr("[2.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],\n"));
  EXPECT_THAT(out_of("attn draw steps.safetensors --tensor weights --dropout 0.5"),
              HasSubstr("[0.5517, 0.4921, 0.0000, 0.0000, 0.0000, 0.0000]"));
  EXPECT_NE(out_of("attn draw ones:6,6 --dropout 0.5 --rng native"), out_of("attn draw ones:6,6 --dropout 0.5"));
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
    refused(std::string("attn draw 'randn:") + sizes + "'", {"[WHAT] expected sizes of at least 0", "randn:4,8,32"});
  }
  for (const char* range : {"", ":3", "5:3", "3,3:2", "4,1:2", "0,10:", "0,10", "a,b:2"}) {
    refused(std::string("attn run simple --input 'randint:") + range + "'", {"[--input]", "LOW below HIGH"});
  }
  refused("attn draw randn:99999999,99999999", {"[memory]"});
  refused("attn run simple --input randn:2,2 --tensor x", {"--tensor"});
  refused("attn draw ones:2 --dropout 1.5", {"--dropout"});
  refused("attn draw ones:2 --dropout nan", {"--dropout"});
  EXPECT_EQ(run("attn run causal --input randn:4").status, 3);  // a shape, as of a file
  refused("attn run average --seed 3", {"--seed"});             // nothing is drawn
  EXPECT_EQ(run("attn draw randn").status, 3);                  // a file
}

}  // namespace
}  // namespace attn::test
