// Windows, lengths, packed sequences, ALiBi, sinks, softcap and grouped heads, as transformers and PyTorch compute them
// (masks.py): by the fused kernels in float32, composed in float64.
#include "attn/attention.hpp"
#include "golden/golden.hpp"

namespace {

using namespace attn;

struct Problem {
  Tensor q, k, v, dz;
  AttentionOptions options;
};

Tensor integers(const std::string& text) {  // "0x4x9", or "none"
  if (text == "none") return {};
  std::vector<std::int64_t> values;
  std::istringstream stream(text);
  for (std::string value; std::getline(stream, value, 'x');) values.push_back(std::stoll(value));
  const Tensor result = Tensor::empty({static_cast<std::int64_t>(values.size())}, DType::i64);
  std::copy(values.begin(), values.end(), result.data<std::int64_t>());
  return result;
}

// Draws a problem in the order in which masks.py draws.
Problem drawn(const golden::Case& wanted, DType dtype) {
  const golden::Config& c = wanted.config;
  Generator stream(static_cast<std::uint64_t>(c.integer("seed")));
  const auto draw = [&](const Shape& shape) { return stream.uniform(shape, -2, 2).to(dtype); };
  const std::int64_t b = c.integer("b"), hq = c.integer("hq"), hkv = c.integer("hkv"), tq = c.integer("tq"),
                     tk = c.integer("tk"), d = c.integer("d");
  Problem problem{
      .q = draw({b, hq, tq, d}), .k = draw({b, hkv, tk, d}), .v = draw({b, hkv, tk, d}), .dz = {}, .options = {}};
  problem.dz = draw({b, hq, tq, d});
  AttentionOptions& options = problem.options;
  options.mask = {.is_causal = c.flag("causal"),
                  .align = c.text("align") == "bottom_right" ? Align::bottom_right : Align::top_left,
                  .window_left = c.integer("left"),
                  .window_right = c.integer("right"),
                  .key_lengths = integers(c.text("lengths")),
                  .query_starts = integers(c.text("query_starts")),
                  .key_starts = integers(c.text("key_starts"))};
  options.scale = c.real("scale");
  options.softcap = c.real("softcap");
  if (c.flag("sinks")) options.sinks = stream.uniform({hq}, -2, 2);
  if (wanted.expected.count("slopes") == 1) options.alibi_slopes = wanted.expected.at("slopes");
  return problem;
}

// Expected values are float32, which PyTorch computed; a difference is mostly its rounding.
void equals(const golden::Case& c, const Problem& problem) {
  const auto& [q, k, v, dz, options] = problem;
  const golden::Tolerance forward{.absolute = 1e-6, .times_largest = true},
      backward{.absolute = 5e-6, .times_largest = true};
  const auto expect = [&](const char* what, const Tensor& found, golden::Tolerance tolerance) {
    golden::expect_close(c.expected.at(what), found.to(DType::f32), tolerance, c, what);
  };
  const AttentionResult found = attention(q, k, v, options);
  expect("output", found.output, forward);
  AttentionOptions with_weights = options;
  with_weights.return_weights = true;
  if (c.expected.count("weights") == 1) expect("weights", attention(q, k, v, with_weights).weights, forward);
  const AttentionGradient gradient = attention_backward(dz, q, k, v, options, found);
  expect("q.grad", gradient.q, backward);
  expect("k.grad", gradient.k, backward);
  expect("v.grad", gradient.v, backward);
  if (options.sinks.defined()) expect("sinks.grad", gradient.sinks, backward);
}

class Masks : public testing::TestWithParam<const char*> {};

TEST_P(Masks, EqualThoseOfOtherLibraries) {
  for (const auto& c : golden::cases("masks", "masks", GetParam())) {
    for (const DType dtype : {DType::f32, DType::f64}) equals(c, drawn(c, dtype));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Masks,
                         testing::Values("window", "lengths", "packed", "alibi", "sinks", "softcap", "grouped"),
                         [](const auto& of) { return std::string(of.param); });

}  // namespace
