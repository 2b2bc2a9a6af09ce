// Every mistake a caller of attention() can make is an Error of the right kind that names what was found.
#include "attention/oracle.hpp"

namespace {

using namespace attn;
using namespace attn::test;
using Kind = Error::Kind;

Tensor ones(const Shape& shape, DType dtype = DType::f32) { return Tensor::ones(shape, dtype); }

void expect_refused(Kind kind, const std::vector<std::string>& parts, const Tensor& q, const Tensor& k, const Tensor& v,
                    const AttentionOptions& options = {}) {
  expect_error(kind, parts, [&] { attention(q, k, v, options); });
  expect_error(kind, parts, [&] { attention_backward(ones({1, 1, 1, 1}), q, k, v, options); });
}

TEST(Validate, Ranks) {
  const Tensor x = ones({1, 2, 3, 4});
  expect_refused(Kind::shape, {"[attention]", "q (2, 3, 4)", "k (1, 2, 3, 4)", "unsqueeze"}, x.select(0, 0), x, x);
  expect_refused(Kind::shape, {"k (2, 3, 4)"}, x, x.select(0, 0), x);
  expect_refused(Kind::shape, {"v (2, 3, 4)"}, x, x, x.select(0, 0));
  expect_refused(Kind::shape, {"q ()"}, {}, {}, {});
}

TEST(Validate, DTypes) {
  const Tensor x = ones({1, 2, 3, 4});
  expect_refused(Kind::dtype, {"floating", "int64"}, x.to(DType::i64), x.to(DType::i64), x.to(DType::i64));
  expect_refused(Kind::dtype, {"one dtype", "float32, float64, float32", "to(dtype)"}, x, x.to(DType::f64), x);
  expect_refused(Kind::dtype, {"float32, float32, float16"}, x, x, x.to(DType::f16));
}

TEST(Validate, SizesNameAllThreeShapes) {
  const Tensor x = ones({2, 2, 3, 4});
  const auto refuse = [&](const char* what, const Tensor& k, const Tensor& v) {
    expect_refused(Kind::shape, {what, "q (2, 2, 3, 4)", "k " + k.shape().str(), "v " + v.shape().str()}, x, k, v);
  };
  refuse("batch", ones({1, 2, 3, 4}), x);
  refuse("batch", x, ones({1, 2, 3, 4}));
  refuse("key heads as value heads", x, ones({2, 1, 3, 4}));
  refuse("keys as values", x, ones({2, 2, 5, 4}));
  refuse("head_dim", ones({2, 2, 3, 5}), x);
  refuse("multiple", ones({2, 4, 3, 4}), ones({2, 4, 3, 4}));
  refuse("multiple", ones({2, 0, 3, 4}), ones({2, 0, 3, 4}));
  expect_refused(Kind::shape, {"at least 1"}, ones({1, 1, 1, 0}), ones({1, 1, 1, 0}),
                 x.slice(0, 0, 1).slice(1, 0, 1).slice(2, 0, 1));
}

TEST(Validate, Masks) {
  const Tensor x = ones({2, 2, 3, 4});
  const auto refuse = [&](Kind kind, const std::vector<std::string>& parts, const Mask& mask) {
    expect_refused(kind, parts, x, x, x, {.mask = mask});
  };
  refuse(Kind::dtype, {"bool", "float32", "Mask::additive"}, Mask::boolean(ones({3, 3})));
  refuse(Kind::dtype, {"floating", "bool", "Mask::boolean"}, Mask::additive(ones({3, 3}, DType::boolean)));
  for (const Shape& shape : {Shape{3, 2}, Shape{2, 3}, Shape{3, 1, 3, 3}, Shape{3, 3, 3}, Shape{1, 2, 2, 3, 3}}) {
    refuse(Kind::shape, {"(2, 2, 3, 3)", shape.str()}, Mask::boolean(ones(shape, DType::boolean)));
    refuse(Kind::shape, {"(2, 2, 3, 3)", shape.str()}, Mask::additive(ones(shape)));
  }
}

TEST(Validate, AMaskMayNotBeLargerThanTheScores) {
  const Tensor x = ones({1, 1, 1, 4});
  for (const Shape& shape : {Shape{3}, Shape{3, 1}, Shape{2, 1, 1, 1}}) {
    expect_refused(Kind::shape, {"[attention]", "(1, 1, 1, 1)", shape.str()}, x, x, x,
                   {.mask = Mask::boolean(ones(shape, DType::boolean))});
  }
}

TEST(Validate, StartsOfPackedSequencesReachTheEnd) {
  const Tensor x = ones({1, 2, 6, 4});
  const auto starts = [](const std::vector<double>& all) {
    return tensor(all, {static_cast<std::int64_t>(all.size())}, DType::i64);
  };
  for (const std::vector<double>& wrong :
       {std::vector<double>{0, 5}, {0, 2, 4}, {0, 7}, {0, 8, 6}, {1, 6}, {-1, 6}, {0}}) {
    expect_refused(Kind::argument, {"query_starts", "end at 6"}, x, x, x,
                   {.mask = Mask::sequences(starts(wrong), starts({0, 6}))});
    expect_refused(Kind::argument, {"key_starts", "end at 6"}, x, x, x,
                   {.mask = Mask::sequences(starts({0, 6}), starts(wrong))});
  }
}

TEST(Validate, PackedSequencesHaveNoKeyLengths) {
  const Tensor x = ones({1, 2, 6, 4}), starts = tensor({0, 6}, {2}, DType::i64);
  AttentionOptions options{.mask = Mask::sequences(starts, starts)};
  options.mask.key_lengths = tensor({6}, {1}, DType::i64);
  expect_refused(Kind::argument, {"without key_lengths; found key_lengths"}, x, x, x, options);
}

TEST(Validate, ANumberForEachHead) {
  const Tensor x = ones({1, 4, 3, 4});
  for (const Shape& shape : {Shape{1}, Shape{3}, Shape{5}, Shape{}, Shape{0}, Shape{1, 4}, Shape{2, 2}}) {
    expect_refused(Kind::shape, {"sinks", "(4,)", shape.str()}, x, x, x, {.sinks = ones(shape)});
    expect_refused(Kind::shape, {"alibi_slopes", "(4,)", shape.str()}, x, x, x, {.alibi_slopes = ones(shape)});
  }
}

TEST(Validate, OptionsWithoutWhatMakesThemActAreRefused) {
  const Tensor x = ones({1, 1, 3, 4});
  for (const RelativeBias& bias : {RelativeBias{.max_distance = -3}, RelativeBias{.bidirectional = false}})
    expect_refused(Kind::argument, {"relative_bias with a table", "found none"}, x, x, x, {.relative_bias = bias});
  expect_refused(Kind::argument, {"block_keep beside block_query", "0 and 64 alone"}, x, x, x,
                 {.mask = {.block_key = 64}});
}

TEST(Validate, ADropoutMaskOfAnotherDTypeIsToldByIt) {
  const Tensor x = ones({1, 1, 3, 4});
  expect_refused(Kind::argument, {"booleans", "found float32 (3, 3)"}, x, x, x,
                 {.dropout = 0.5, .dropout_keep = ones({3, 3})});
}

TEST(Validate, Numbers) {
  const Tensor x = ones({2, 2, 3, 4}), keep = ones({2, 2, 3, 3}, DType::boolean);
  const auto refuse = [&](const std::vector<std::string>& parts, const AttentionOptions& options) {
    expect_refused(Kind::argument, parts, x, x, x, options);
  };
  for (const double bad : {kNan, kInf, -kInf}) refuse({"finite scale"}, {.scale = bad});
  for (const double bad : {7e-31, -7e-31, 1e-38, 1e-300}) refuse({"magnitude at least 2^-100"}, {.scale = bad});
  refuse({"softcap / 2^110", "1e-20"}, {.scale = 1e-20, .softcap = 0x1p64});
  for (const double bad : {-1.0, kNan, kInf, 1e-300, 1e39}) refuse({"softcap"}, {.softcap = bad});
  for (const double bad : {-0.1, 1.1, kNan}) refuse({"dropout in [0, 1]"}, {.dropout = bad, .dropout_keep = keep});
  refuse({"dropout_keep", "(2, 2, 3, 3)", "none", "Generator::dropout_keep"}, {.dropout = 0.5});
  refuse({"dropout_keep", "(2, 2, 3, 2)"}, {.dropout = 0.5, .dropout_keep = ones({2, 2, 3, 2}, DType::boolean)});
  refuse({"dropout_keep", "booleans"}, {.dropout = 0.5, .dropout_keep = ones({2, 2, 3, 3})});
  refuse({"dropout_keep", "(2, 2, 3, 2)"}, {.dropout_keep = ones({2, 2, 3, 2}, DType::boolean)});
  refuse({"dropout_keep or dropout_key"}, {.dropout_keep = keep, .dropout_key = 1});
}

TEST(Validate, TheLeastScalesActAsTheirQueriesDo) {
  // Scores of 1 and 0, whatever the scale is that they come from.
  for (const double scale : {0x1p-100, -0x1p-100, 0x1p-46}) {
    const Tensor q = Tensor::full({1, 1, 1, 1}, 0x1p20);
    Tensor k = Tensor::zeros({1, 1, 2, 1}), v = Tensor::zeros(k.shape());
    k.set({0, 0, 0, 0}, 0x1p-20 / scale), v.set({0, 0, 0, 0}, 1);
    const double softcap = scale == 0x1p-46 ? 0x1p64 : 0;
    EXPECT_NEAR(attention(q, k, v, {.scale = scale, .softcap = softcap}).output.at({0, 0, 0, 0}), 0.731059, 1e-6);
  }
}

TEST(Validate, AHugeProblemIsAnErrorNotACrash) {
  constexpr std::int64_t big = std::int64_t{1} << 40;
  const Tensor x = ones({1, 1, 1, 1}).expand({1, 1, big, 1});
  try {
    attention(x, x, x);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Kind::shape);
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace
