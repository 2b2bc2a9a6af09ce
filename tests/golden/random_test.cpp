// Every random stream against PyTorch's: programs of draws on one generator.
#include <cstdint>
#include <limits>

#include "attn/modules.hpp"
#include "golden/golden.hpp"

namespace {

using attn::DropoutFlavour;
using attn::Generator;
using attn::Tensor;

// PyTorch's randn approximates log, sin and cos in float32; its worst value in 640000 lies 2.6 epsilon from the
// correctly rounded functions, so a good libm may differ by little more. (Without AVX2, PyTorch rounds the angle
// elsewhere and is farther off near the zeros of sine and cosine.)
constexpr golden::Tolerance kRandn{.relative = 4.0 * std::numeric_limits<float>::epsilon()};

std::vector<std::string> split(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> parts;
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

// Reads a seed as PyTorch does: negative ones are two's complement.
std::uint64_t seed_of(const std::string& text) {
  return text[0] == '-' ? static_cast<std::uint64_t>(std::stoll(text)) : std::stoull(text);
}

// Eight elements a byte, as generate.py packs them.
Tensor packed(const Tensor& keep) {
  Tensor result = Tensor::zeros({(keep.numel() + 7) / 8}, attn::DType::u8);
  for (std::int64_t i = 0; i < keep.numel(); ++i) {
    auto& byte = result.data<std::uint8_t>()[i / 8];
    byte = static_cast<std::uint8_t>(byte | (keep.data<bool>()[i] << (i % 8)));
  }
  return result;
}

Tensor linear(std::int64_t d_in, std::int64_t d_out, bool has_bias, Generator& rng) {
  const attn::Linear layer(d_in, d_out, has_bias, rng);
  const Tensor weight = layer.weight.value.view({-1});
  return has_bias ? attn::concat_last(std::vector<Tensor>{weight, layer.bias.value}) : weight;
}

Tensor draw(const std::string& what, const std::vector<std::string>& arguments, Generator& rng) {
  const auto integer = [&](std::size_t i) { return std::int64_t{std::stoll(arguments.at(i))}; };
  const auto real = [&](std::size_t i) { return std::stod(arguments.at(i)); };
  if (what == "rand") return rng.rand({integer(0)});
  if (what == "randn") return rng.randn({integer(0)});
  if (what == "uniform") return rng.uniform({integer(2)}, real(0), real(1));
  if (what == "randint") return rng.randint(integer(0), integer(1), {integer(2)});
  if (what == "dropout" || what == "bernoulli") return packed(rng.dropout_keep({integer(1)}, real(0)));
  if (what == "linear") return linear(integer(0), integer(1), integer(2) != 0, rng);
  throw std::runtime_error("no draw is named " + what);
}

void draw_again(const golden::Case& c, DropoutFlavour flavour) {
  Generator rng(0, flavour);
  std::string seed;
  std::size_t compared = 0, step = 0;
  for (const auto& [what, value] : c.config.items()) {
    const std::string index = std::to_string(step++);
    if (what == "seed") {
      seed = value;
      rng.manual_seed(seed_of(seed));
      continue;
    }
    const Tensor found = draw(what, split(value), rng);
    const std::string text =
        golden::difference(c.expected.at(index), found, what == "randn" ? kRandn : golden::Tolerance{});
    ASSERT_TRUE(text.empty()) << "case " << c.number << ", seed " << seed << ", step " << index << ": " << what << "="
                              << value << ": " << text << "\n  " << c.config.line();
    ++compared;
  }
  EXPECT_EQ(compared, c.expected.size()) << c.number;
}

// Draws what the files random (native dropout) and mkl hold, bit for bit, and randn within four epsilon.
class RandomStreams : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(RandomStreams, ArePyTorchs) {
  const auto& [file, name] = GetParam();
  const auto flavour = file == std::string("mkl") ? DropoutFlavour::mkl : DropoutFlavour::native;
  for (const auto& c : golden::cases(file, "program", name)) draw_again(c, flavour);
}

INSTANTIATE_TEST_SUITE_P(Golden, RandomStreams,
                         testing::ValuesIn(std::vector<std::pair<const char*, const char*>>{{"random", "rand"},
                                                                                            {"random", "uniform"},
                                                                                            {"random", "randint"},
                                                                                            {"random", "randn"},
                                                                                            {"random", "dropout"},
                                                                                            {"random", "bernoulli"},
                                                                                            {"random", "linear"},
                                                                                            {"random", "mixed"},
                                                                                            {"mkl", "dropout"},
                                                                                            {"mkl", "bernoulli"},
                                                                                            {"mkl", "mixed"}}),
                         [](const auto& of) { return std::string(of.param.first) + "_" + of.param.second; });

}  // namespace
