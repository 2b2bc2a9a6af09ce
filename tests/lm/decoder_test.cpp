// A decoder beside the whole forward pass, what is drawn, and what generate() promises.
#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>

#include "attn/error.hpp"
#include "attn/generate.hpp"
#include "attn/io.hpp"
#include "attn/pretrained.hpp"
#include "core/largest.hpp"
#include "core/seed.hpp"
#include "core/testing.hpp"
#include "kernels/use.hpp"

namespace attn::test {
namespace {

constexpr double kRounding = std::numeric_limits<float>::epsilon();
const std::string kData = ATTN_TEST_DATA "/gpt2/";

GPT random_model(Generator& rng) {
  GPT model({.vocab_size = 37, .context_length = 24, .layers = 3, .heads = 3, .width = 24}, rng);
  for (Parameter* p : model.parameters()) {  // large enough for weights and logits that differ
    const Tensor noise = rng.randn(p->value.shape());
    for (std::int64_t i = 0; i < noise.numel(); ++i) p->value.data<float>()[i] += 0.3f * noise.data<float>()[i];
  }
  return model;
}

// The logits after each token that ends a piece, the text read in pieces of these sizes: (pieces, b, vocab).
std::vector<Tensor> read_in_pieces(Decoder& decoder, const Tensor& ids, const std::vector<std::int64_t>& sizes) {
  std::vector<Tensor> logits;
  std::int64_t at = 0;
  for (const std::int64_t size : sizes) {
    logits.push_back(decoder.read(ids.slice(1, at, at + size)));
    at += size;
  }
  return logits;
}

std::vector<std::int64_t> random_pieces(std::mt19937& random, std::int64_t total) {
  std::vector<std::int64_t> sizes;
  while (total > 0) {
    sizes.push_back(std::min<std::int64_t>(total, std::uniform_int_distribution<std::int64_t>(1, 7)(random)));
    total -= sizes.back();
  }
  return sizes;
}

TEST(Decoder, GivesTheLogitsOfTheWholeForwardPass) {
  const unsigned seed = drawn_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 6; ++round) {
    Generator rng(seed + static_cast<unsigned>(round));
    GPT model = random_model(rng);
    const std::int64_t batch = 1 + round % 3;
    const Tensor ids = rng.randint(0, 37, {batch, 24}), wanted = model.forward(ids);
    const auto sizes = round == 0 ? std::vector<std::int64_t>(24, 1) : random_pieces(random, 24);
    Decoder decoder(model, batch);
    const auto logits = read_in_pieces(decoder, ids, sizes);
    std::int64_t at = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      at += sizes[i];
      // Both sum in float32, through three layers.
      EXPECT_LT(difference(logits[i], wanted.select(1, at - 1)), 64 * kRounding * largest(wanted)) << "token " << at;
    }
    EXPECT_EQ(decoder.length(), 24);
  }
}

// Each text's next token stands at its own place, whatever the others' lengths.
TEST(Decoder, TextsOfOtherLengthsBesideOneChangeNothing) {
  Generator rng(8);
  GPT model = random_model(rng);
  const Tensor ids = rng.randint(0, 37, {3, 24});
  const std::vector<std::int64_t> begin{9, 2, 5};
  Decoder decoder(model, 3);
  const auto token = [&](std::int64_t item, std::int64_t at) { return ids.data<std::int64_t>()[item * 24 + at]; };
  const auto begins = [&](std::int64_t item) { return begin[static_cast<std::size_t>(item)]; };
  for (std::int64_t item = 0; item < 3; ++item) {
    decoder.read(item, std::span(ids.data<std::int64_t>() + item * 24, static_cast<std::size_t>(begins(item))));
  }
  for (std::int64_t step = 0; step < 4; ++step) {
    std::vector<std::int64_t> next;
    for (std::int64_t item = 0; item < 3; ++item) next.push_back(token(item, begins(item) + step));
    const Tensor logits = decoder.read(next);
    for (std::int64_t item = 0; item < 3; ++item) {
      const std::int64_t at = begins(item) + step;
      const Tensor wanted = model.forward(ids.slice(0, item, item + 1).slice(1, 0, at + 1)).select(1, at).select(0, 0);
      EXPECT_LT(difference(logits.select(0, item), wanted), 64 * kRounding * largest(wanted)) << item << ", " << step;
    }
  }
}

// Blocks that add nothing leave the logits' product, which rounds as the whole forward pass does.
TEST(Decoder, FollowsThePrecision) {
  for (const kernels::Target& target : kernels::targets()) {
    if (!target.supported || target.kernels->multiply_add_bf16 == nullptr) continue;
    const kernels::UseKernels use(*target.kernels);
    for (const Precision precision : {Precision::highest, Precision::high, Precision::medium}) {
      Generator rng(5);
      GPT model({.vocab_size = 37, .context_length = 24, .layers = 1, .heads = 3, .width = 96, .precision = precision},
                rng);
      for (Parameter* p : model.blocks[0]->parameters()) p->value.fill(0);
      const Tensor ids = rng.randint(0, 37, {2, 7});
      Decoder decoder(model, 2);
      const Tensor whole = model.forward(ids).slice(1, 6, 7).contiguous().view({2, 37});
      EXPECT_TRUE(identical(decoder.read(ids), whole)) << target.isa << ", " << name(precision);
    }
  }
}

TEST(Decoder, SameBitsForAnyThreadsAndBatch) {
  Generator rng(4);
  GPT model = random_model(rng);
  const Tensor ids = rng.randint(0, 37, {3, 20});
  const std::vector<std::int64_t> sizes{9, 1, 1, 3, 1, 5};
  Decoder all(model, 3), one(model, 1);
  const auto wanted = read_in_pieces(all, ids, sizes), alone = read_in_pieces(one, ids.slice(0, 1, 2), sizes);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(threads == 1 ? 3 : 1);
  Decoder other(model, 3);
  const auto found = read_in_pieces(other, ids, sizes);
  omp_set_num_threads(threads);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_TRUE(identical(wanted[i], found[i])) << "threads, piece " << i;
    EXPECT_TRUE(identical(wanted[i].slice(0, 1, 2), alone[i])) << "batch, piece " << i;
  }
}

// A prompt takes the memory of one layer's steps, and not of all of them.
TEST(Decoder, KeepsNothingForABackwardPass) {
  Generator rng(1);
  GPT model = random_model(rng);
  const Tensor ids = Tensor::from(std::span<const std::int64_t>(std::array<std::int64_t, 4>{1, 2, 3, 4}), {1, 4});
  const Tensor logits = model.forward(ids);
  Decoder(model).read(ids);
  EXPECT_THROW(model.backward(Tensor::ones(logits.shape())), Error);
  model.forward(ids);
  EXPECT_NO_THROW(model.backward(Tensor::ones(logits.shape())));
  model.evaluate(ids, ids);
  EXPECT_THROW(model.backward(Tensor::ones(logits.shape())), Error);
}

TEST(Decoder, HasRoomForTheTokensThatItIsTold) {
  Generator rng(1);
  GPT model = random_model(rng);
  Decoder grows(model), roomy(model, 1, DType::f32, {}, 24);
  const std::size_t room = roomy.bytes();
  const std::vector<std::int64_t> ids{1, 2, 3};
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(identical(grows.read(0, ids), roomy.read(0, ids)));
  EXPECT_EQ(roomy.bytes(), room);
}

TEST(Decoder, ForgetsAndReadsAgain) {
  Generator rng(5);
  GPT model = random_model(rng);
  Decoder decoder(model);
  const std::vector<std::int64_t> text{1, 2, 3, 4, 5};
  const Tensor first = decoder.read(0, text);
  decoder.truncate(0, 2);
  EXPECT_EQ(decoder.length(), 2);
  decoder.read(0, std::vector<std::int64_t>{9, 8});
  decoder.truncate(0, 0);
  EXPECT_TRUE(identical(decoder.read(0, text), first));
}

TEST(Decoder, RefusesWhatDoesNotFitAndGoesOn) {
  Generator rng(6);
  GPT model = random_model(rng);
  Decoder decoder(model, 2);
  const Tensor ids = rng.randint(0, 37, {2, 20});
  decoder.read(ids);
  EXPECT_THROW(decoder.read(rng.randint(0, 37, {2, 5})), Error);            // 25 tokens of 24
  EXPECT_THROW(decoder.read(rng.randint(0, 37, {1, 2})), Error);            // another batch
  EXPECT_THROW(decoder.read(Tensor::full({2, 1}, 37, DType::i64)), Error);  // no such token
  EXPECT_THROW(decoder.read(Tensor::full({2, 1}, -1, DType::i64)), Error);  //
  EXPECT_THROW(decoder.read(Tensor::full({2, 1}, 1, DType::f32)), Error);   // no ids
  EXPECT_THROW(decoder.read(Tensor::empty({2, 0}, DType::i64)), Error);     // none
  EXPECT_THROW(decoder.read(std::vector<std::int64_t>{}), Error);           //
  EXPECT_EQ(decoder.length(), 20);
  const Tensor more = rng.randint(0, 37, {2, 4});
  Decoder fresh(model, 2);
  fresh.read(ids);
  EXPECT_TRUE(identical(decoder.read(more), fresh.read(more)));
}

TEST(Decoder, WhatWasMovedFromSaysSo) {
  Generator rng(6);
  GPT model = random_model(rng);
  Decoder decoder(model);
  const std::vector<std::int64_t> ids{1};
  const Decoder taken = std::move(decoder);
  const auto says_so = [](const std::function<void()>& call) {
    expect_error(Error::Kind::argument, {"moved from"}, call);
  };
  says_so([&] { decoder.length(); });  // NOLINT(bugprone-use-after-move)
  says_so([&] { decoder.read(0, ids); });
  says_so([&] { decoder.read(ids); });
  says_so([&] { decoder.read(integers({1}).view({1, 1})); });
  says_so([&] { decoder.truncate(0, 0); });
  const GPT other = std::move(model);
  says_so([&] { model.forward(integers({1, 2})); });  // NOLINT(bugprone-use-after-move)
  says_so([&] { model.loss(integers({1, 2}), integers({2, 3})); });
  says_so([&] { model.state_dict(); });
  says_so([&] { Decoder(model).read(0, ids); });
}

TEST(Decoder, ReadsMatricesInBfloat16) {
  Generator rng(7);
  GPT model = random_model(rng), rounded = random_model(rng);
  for (Parameter* p : model.parameters()) {
    if (p->value.rank() == 2) p->value = p->value.to(DType::bf16).to(DType::f32);
  }
  rounded.load_state_dict(model.state_dict());
  store_matrices(rounded, DType::bf16);
  const Tensor ids = rng.randint(0, 37, {1, 24});
  Decoder plain(model), half(rounded);
  // The same values, and sums in the same order: of few rows and, by their float32 copy, of many.
  EXPECT_TRUE(identical(plain.read(ids.slice(1, 0, 20)), half.read(ids.slice(1, 0, 20))));
  EXPECT_TRUE(identical(plain.read(ids.slice(1, 20, 21)), half.read(ids.slice(1, 20, 21))));
  EXPECT_THROW(store_matrices(model, DType::f16), Error);
}

TEST(Decoder, KeepsKeysAndValuesInFewerBits) {
  Generator rng(8);
  GPT model = random_model(rng);
  const Tensor ids = rng.randint(0, 37, {1, 24});
  Decoder exact(model);
  const Tensor wanted = exact.read(ids);
  for (const DType dtype : {DType::bf16, DType::i8}) {
    Decoder decoder(model, 1, dtype);
    const double error = difference(decoder.read(ids), wanted);
    EXPECT_GT(error, 0);
    EXPECT_LT(error, 0.05 * largest(wanted)) << name(dtype);
  }
}

// ---- sampling -------------------------------------------------------------------------

TEST(Sampling, DrawsAsOftenAsTheProbabilitiesSay) {
  const Tensor logits = Tensor::of({0, 1, 2, -1, 1.5f});
  const Sampling sampling{.temperature = 0.8, .top_k = 4};
  Generator rng(99);
  std::map<std::int64_t, int> counts;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) ++counts[sample(logits, sampling, rng)];
  for (const Candidate& c : candidates(logits, sampling)) {
    const double deviation = std::sqrt(kDraws * c.probability * (1 - c.probability));
    EXPECT_NEAR(counts[c.id], kDraws * c.probability, 5 * deviation) << c.id;
    counts.erase(c.id);
  }
  EXPECT_TRUE(counts.empty());
}

TEST(Sampling, TemperatureZeroTakesTheLargestAndDrawsNothing) {
  Generator rng(1), untouched(1);
  EXPECT_EQ(sample(Tensor::of({1, 3, -2, 3}), {.temperature = 0}, rng), 1);
  EXPECT_EQ(rng.next_u64(), untouched.next_u64());
  EXPECT_EQ(sample(Tensor::of({1, 3, 3.5f}), {.temperature = 1e-300}, rng), 2);
}

TEST(Sampling, RejectsWhatIsOutOfRange) {
  Generator rng(1);
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor good = Tensor::of({1, 2});
  for (const Sampling& s : {Sampling{-1}, Sampling{inf}, Sampling{nan}, Sampling{1, -1}, Sampling{1, 0, 0},
                            Sampling{1, 0, 1.1}, Sampling{1, 0, nan}}) {
    EXPECT_THROW(sample(good, s, rng), Error);
  }
  // Counts are told as counts.
  expect_error(Error::Kind::argument, {"top_k of at least 0 (0: all); found -1"}, [&] {
    sample(good, Sampling{1, -1}, rng);
  });
  const Sampling tiny{.temperature = 0, .repetition_penalty = 1e-320};
  const std::vector<std::int64_t> both{0, 1};
  expect_error(Error::Kind::argument, {"a repetition_penalty that leaves logits finite"},
               [&] { sample(good, tiny, rng, both); });
  EXPECT_THROW(sample(Tensor::of({1, nan}), {}, rng), Error);
  EXPECT_THROW(sample(Tensor::of({1, inf}), {}, rng), Error);
  EXPECT_THROW(sample(Tensor::of({-inf, -inf}), {}, rng), Error);
  EXPECT_THROW(sample(Tensor::empty({0}), {}, rng), Error);
  EXPECT_THROW(sample(Tensor::ones({1, 2}), {}, rng), Error);
  EXPECT_EQ(sample(Tensor::of({-inf, 2}), {}, rng), 1);
}

// Returns the tokens that follow one prompt.
std::vector<std::int64_t> written(LanguageModel& model, const std::vector<std::int64_t>& prompt,
                                  const GenerateOptions& options, std::uint64_t seed = 1,
                                  const std::function<bool(std::size_t, std::int64_t)>& each = {}) {
  const std::vector<std::vector<std::int64_t>> prompts{prompt};
  return generate(model, prompts, options, seed, each)[0].ids;
}

// ---- generate -------------------------------------------------------------------------

TEST(Generate, GreedyIsTransformersGenerate) {
  for (const char* name : {"tied-tanh-f32", "tied-gelu-f16", "untied-bf16", "bare-2019-f32"}) {
    GPT model = load_gpt(kData + name);
    const Tensor greedy = io::load_tensor(kData + name + "/logits.safetensors", "greedy");
    std::vector<std::int64_t> all(greedy.data<std::int64_t>(), greedy.data<std::int64_t>() + greedy.numel());
    ASSERT_EQ(all.size(), 12u);
    const auto found = written(model, {all.begin(), all.begin() + 3}, {.tokens = 9, .sampling = {.temperature = 0}});
    EXPECT_EQ(found, std::vector(all.begin() + 3, all.end())) << name;
  }
}

std::int64_t likeliest(GPT& model, std::span<const std::int64_t> text) {
  const Tensor logits = model.forward(Tensor::from(text, {static_cast<std::int64_t>(text.size())}));
  Generator rng(1);
  return sample(logits.select(0, logits.size(0) - 1), {.temperature = 0}, rng);
}

// Past the context the latest half is read anew: told once more, without a cache.
TEST(Generate, GoesOnWithTheLatestHalf) {
  Generator rng(11);
  GPT model = random_model(rng);  // context 24
  for (const std::size_t length :
       {std::size_t{1}, std::size_t{23}, std::size_t{24}, std::size_t{25}, std::size_t{60}}) {
    std::vector<std::int64_t> text;
    for (std::size_t i = 0; i < length; ++i) text.push_back(static_cast<std::int64_t>(rng.next_u32() % 37));
    const auto found = written(model, text, {.tokens = 40, .sampling = {.temperature = 0}});
    ASSERT_EQ(found.size(), 40u);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (text.size() - begin > 24) begin = text.size() - 12;
      EXPECT_EQ(found[i], likeliest(model, std::span(text).subspan(begin))) << "prompt " << length << ", token " << i;
      text.push_back(found[i]);
    }
  }
}

TEST(Generate, SameSeedSameText) {
  Generator rng(12);
  GPT model = random_model(rng);
  const std::vector<std::int64_t> prompt{3, 1};
  const auto with = [&](std::uint64_t seed) {
    return written(model, prompt, {.tokens = 50, .sampling = {.temperature = 3}}, seed);
  };
  EXPECT_EQ(with(1), with(1));
  EXPECT_NE(with(1), with(2));
}

TEST(Generate, StopsWhereItIsTold) {
  Generator rng(13);
  GPT model = random_model(rng);
  const std::vector<std::int64_t> prompt{3};
  const GenerateOptions options{.tokens = 20, .sampling = {.temperature = 3}};
  const auto whole = written(model, prompt, options);
  std::vector<std::int64_t> handed;
  const auto five = written(model, prompt, options, 1, [&](std::size_t, std::int64_t id) {
    handed.push_back(id);
    return handed.size() < 5;
  });
  EXPECT_EQ(five, std::vector(whole.begin(), whole.begin() + 5));
  EXPECT_EQ(handed, five);
  GenerateOptions stopping = options;
  stopping.stops = {whole[7]};
  const auto first = std::find(whole.begin(), whole.end(), whole[7]);
  EXPECT_EQ(written(model, prompt, stopping), std::vector(whole.begin(), first));
  GenerateOptions none = options;
  none.tokens = 0;
  EXPECT_TRUE(written(model, prompt, none).empty());
}

TEST(Generate, RejectsBadPrompts) {
  Generator rng(14);
  GPT model = random_model(rng);
  EXPECT_THROW(written(model, {}, {}), Error);
  EXPECT_THROW(written(model, {37}, {}), Error);
  EXPECT_THROW(written(model, {1}, {.tokens = -1}), Error);
}

}  // namespace
}  // namespace attn::test
