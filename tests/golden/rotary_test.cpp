// Frequencies and rotations as transformers computes them (rotary.py).
#include "attn/rotary.hpp"

#include "golden/golden.hpp"

namespace {

using namespace attn;

TEST(RotaryGolden, Frequencies) {
  for (const auto& c : golden::cases("rotary", "frequencies")) {
    const std::string layer = c.config.text("layer") == "none" ? "" : c.config.text("layer");
    const RopeConfig config = parse_rope_config(c.config.text("json"), layer);
    const RotaryFrequencies found = rotary_frequencies(config, c.config.integer("length"));
    const auto pairs = static_cast<std::int64_t>(found.inv_freq.size());
    // Powers there are PyTorch's, which err by up to 1 ulp.
    golden::expect_close(c.expected.at("inv_freq"), Tensor::from(std::span(found.inv_freq), {pairs}),
                         {.relative = 4 * 0x1p-24}, c, "inv_freq");
    EXPECT_NEAR(c.expected.at("attention_factor").item(), found.attention_factor, 1e-15) << c.config.line();
  }
}

// Angles are the same numbers, so positions of 10^9 differ by no more than small ones: by the last digit of a cosine.
TEST(RotaryGolden, Rotations) {
  for (const auto& c : golden::cases("rotary", "rotation")) {
    Generator stream(static_cast<std::uint64_t>(c.config.integer("seed")));
    const Shape shape{c.config.integer("b"), c.config.integer("h"), c.config.integer("t"), c.config.integer("d")};
    const Tensor x = stream.uniform(shape, -2, 2), dy = stream.uniform(shape, -2, 2);
    RotaryFrequencies f{.layout = c.name == "halves" ? RotaryLayout::halves : RotaryLayout::interleaved};
    const Tensor rates = c.expected.at("inv_freq").contiguous();
    f.inv_freq.assign(rates.data<float>(), rates.data<float>() + rates.numel());
    const RotaryTable table = rotary_table(f, c.expected.at("positions"));
    const golden::Tolerance close{.absolute = 2 * 4 * 0x1p-24};
    golden::expect_close(c.expected.at("output"), rotary(x, table), close, c, "output");
    golden::expect_close(c.expected.at("x.grad"), rotary_backward(dy, table), close, c, "x.grad");
  }
}

}  // namespace
