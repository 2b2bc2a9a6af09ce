// Text from released models: several prompts at once, what is drawn, where it ends, and what it takes.
#include "attn/generate.hpp"

#include "lm/helpers.hpp"

namespace attn::test {
namespace {

TEST(Generation, KeepsWhatTransformersKeeps) {
  const auto golden = io::load(kData / "sampling.safetensors");
  const Tensor &logits = *golden.find("logits"), &settings = *golden.find("settings"),
               &left = *golden.find("probabilities");
  const Ids text = ids_of(*golden.find("text"));
  for (std::int64_t s = 0; s < settings.size(0); ++s) {
    Sampling sampling{.temperature = settings.at({s, 1}), .top_k = static_cast<std::int64_t>(settings.at({s, 2}))};
    sampling.top_p = settings.at({s, 3}), sampling.min_p = settings.at({s, 4});
    sampling.repetition_penalty = settings.at({s, 0});
    for (std::int64_t row = 0; row < logits.size(0); ++row) {
      std::vector<double> found(static_cast<std::size_t>(logits.size(1)), 0);
      for (const Candidate& c : candidates(logits.select(0, row), sampling, text)) {
        found[static_cast<std::size_t>(c.id)] = c.probability;
      }
      for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(found[i], left.at({s, row, static_cast<std::int64_t>(i)}), 1e-6) << "setting " << s << ", id " << i;
      }
    }
  }
}

TEST(Generation, RefusesSettingsOutOfRange) {
  const Tensor logits = Tensor::zeros({4});
  for (const Sampling& wrong : {Sampling{.min_p = -0.1}, Sampling{.min_p = 1.1}, Sampling{.repetition_penalty = 0},
                                Sampling{.repetition_penalty = kNan}, Sampling{.min_p = kNan}}) {
    expect_error(Error::Kind::argument, {"found"}, [&] { candidates(logits, wrong); });
  }
  expect_error(Error::Kind::argument, {"[0, 4)"}, [&] { candidates(logits, {.repetition_penalty = 2}, Ids{4}); });
}

TEST(Generation, NamesNoTokenThatIsNeverDrawn) {
  const Tensor logits = Tensor::of({0, -INFINITY, 2000, 0, -INFINITY});
  for (const Sampling& sampling :
       {Sampling{}, Sampling{.top_k = 4}, Sampling{.top_p = 1 - 1e-16}, Sampling{.min_p = 0}}) {
    const std::vector<Candidate> found = candidates(logits, sampling);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].id, 2);
    EXPECT_EQ(found[0].probability, 1);
  }
}

// A text is the one that its prompt has alone, whatever is beside it, however it is drawn.
TEST(Generation, EachTextIsItsOwn) {
  for (const char* family : {"gemma3_text", "phi3"}) {
    LanguageModel model = load_language_model(kData / family);
    const std::vector<Ids> prompts{{5, 6, 7}, {8}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};
    GenerateOptions options{.tokens = 30,
                            .sampling = {.temperature = 0.8, .top_p = 0.95, .min_p = 0.01, .repetition_penalty = 1.1}};
    std::vector<Ids> heard(3);
    const auto all = generate(model, prompts, options, 7, [&](std::size_t i, std::int64_t id) {
      heard[i].push_back(id);
      return true;
    });
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(all[i].ids.size(), 30u);
      EXPECT_FALSE(all[i].stopped);
      EXPECT_EQ(all[i].ids, heard[i]);
      EXPECT_EQ(all[i].ids, generate(model, std::span(&prompts[i], 1), options, 7)[0].ids) << family << i;
      EXPECT_NE(all[i].ids, generate(model, std::span(&prompts[i], 1), options, 8)[0].ids) << family << i;
    }
    // Stops end one text each, and are not part of it.
    GenerateOptions stopping = options;
    stopping.stops = {all[0].ids[4], all[2].ids[9]};
    const auto stopped = generate(model, prompts, stopping, 7);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const Ids& whole = all[i].ids;
      const auto end = std::find_first_of(whole.begin(), whole.end(), stopping.stops.begin(), stopping.stops.end());
      EXPECT_EQ(stopped[i].ids, Ids(whole.begin(), end));
      EXPECT_EQ(stopped[i].stopped, end != whole.end());
    }
  }
}

// In products of bfloat16 logits keep its 8 bits, and a text is still its own, whatever its neighbours are: for each
// family, whose layers have biases, norms and heads of their own.
TEST(Generation, RoundsProductsWhereItMay) {
  const double close = 8 * 0x1p-8;  // eight epsilons of bfloat16
  for (const std::string& family : families()) {
    for (const DType weights : {DType::f32, DType::bf16, DType::i8}) {
      SCOPED_TRACE(testing::Message() << family << " " << name(weights));
      LanguageModel model = load_language_model(kData / family, weights, Precision::medium);
      LanguageModel exact = load_language_model(kData / family, weights);
      const Ids ids{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};
      Decoder rounded(model, 2, DType::bf16), wide(exact);
      const Tensor prompt = rounded.read(0, ids);
      expect_of_largest(prompt, wide.read(0, ids), close, "logits of a prompt");
      rounded.read(1, Ids{7});
      const Tensor next = rounded.read(Ids{8, 2}).select(0, 0);
      expect_of_largest(next, wide.read(0, Ids{8}), close, "logits of a token");
      Decoder alone(model, 1, DType::bf16);
      EXPECT_TRUE(identical(alone.read(0, ids), prompt));
      EXPECT_TRUE(identical(alone.read(0, Ids{8}), next));
    }
  }
}

TEST(Generation, RefusesWhatHasNoRoom) {
  LanguageModel model = load_language_model(kData / "llama");
  const std::vector<Ids> prompts{Ids(30, 1), Ids(40, 2)}, empty{Ids{}};
  const auto refused = [&](const std::vector<Ids>& given, std::int64_t tokens, const char* part) {
    bool heard = false;
    expect_error(Error::Kind::argument, {part}, [&] {
      generate(model, given, {.tokens = tokens}, 1, [&](std::size_t, std::int64_t) { return heard = true; });
    });
    EXPECT_FALSE(heard);
  };
  refused(prompts, 25, "context_length = 64");
  refused(empty, 3, "at least one token");
  refused({}, 3, "at least one prompt");
  EXPECT_EQ(generate(model, prompts, {.tokens = 24}, 1)[1].ids.size(), 24u);
  EXPECT_TRUE(generate(model, prompts, {.tokens = 0}, 1)[0].ids.empty());
}

// Each token follows from the one before it alone.
TEST(Generation, AContextOfOneToken) {
  Generator rng(5);
  GPT model({.vocab_size = 11, .context_length = 1, .layers = 1, .heads = 2, .width = 8}, rng);
  const std::vector<Ids> prompts{{3}, {1, 4, 2}};
  const auto texts = generate(model, prompts, {.tokens = 6, .sampling = {.temperature = 0}}, 1);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    std::int64_t last = prompts[i].back();
    ASSERT_EQ(texts[i].ids.size(), 6u);
    for (const std::int64_t id : texts[i].ids) {
      Decoder decoder(model);
      EXPECT_EQ(id, candidates(decoder.read(0, Ids{last}), {.temperature = 0}).front().id);
      last = id;
    }
  }
}

TEST(Generation, DoesNotGoOnFromAStepThatThrew) {
  LanguageModel model = load_language_model(kData / "llama");
  const std::vector<Ids> prompts{{1, 2}, {3}};
  Generation generation(model, prompts, {.tokens = 5}, 1);
  const auto fails = [](std::size_t, std::int64_t) -> bool { throw std::runtime_error("full disk"); };
  EXPECT_THROW(generation.step(fails), std::runtime_error);
  expect_error(Error::Kind::argument, {"one that threw", "begin anew"}, [&] { generation.step(); });
  EXPECT_EQ(generation.texts()[0].ids.size(), 1u);
}

// A layer with a window keeps what it shows, however long the text; prompts longer than a piece are read in pieces.
TEST(Generation, AWindowsMemoryStays) {
  LanguageModelConfig config = open_pretrained(kData / "mistral").config;
  config.context_length = 5000;
  LanguageModel model(config);
  std::mt19937 rng(5);
  for (Parameter* p : model.parameters()) p->value = uniform(rng, p->value.shape(), DType::f32, -0.5, 0.5);
  Ids text;
  for (int i = 0; i < 3000; ++i) text.push_back(pick(rng, 0, config.vocab_size - 1));
  Decoder decoder(model), stepwise(model);
  const Tensor logits = decoder.read(0, text);
  const std::size_t held = decoder.bytes();
  for (int i = 0; i < 300; ++i) decoder.read(Ids{text[static_cast<std::size_t>(i)]});
  EXPECT_EQ(decoder.bytes(), held);
  EXPECT_EQ(decoder.length(), 3300);
  expect_of_largest(logits, model.forward(integers(text)).select(0, 2999), 2e-5, "pieces");
  for (std::size_t at = 0; at < 700; at += 7) stepwise.read(0, std::span(text).subspan(at, 7));
  expect_of_largest(stepwise.read(0, std::span(text).subspan(700)), logits, 2e-5, "other pieces");
}

// The keys of a text of 30 tokens are turned by the frequencies of long ones, which begin at 25.
TEST(LongRope, ATextThatIsShortAgainHasTheLogitsOfAShortOne) {
  LanguageModelConfig config = open_pretrained(kData / "phi3").config;
  for (LayerConfig& layer : config.layers) layer.window = 0;
  Generator rng(3);
  LanguageModel model(config, rng);
  Ids text(40);
  std::iota(text.begin(), text.end(), 1);
  const std::span<const std::int64_t> ids(text);
  for (const std::size_t kept : {10u, 24u, 25u}) {
    Decoder decoder(model);
    decoder.read(0, ids.first(30));
    decoder.truncate(0, static_cast<std::int64_t>(kept));
    EXPECT_EQ(decoder.length(), static_cast<std::int64_t>(kept));
    for (const std::size_t more : {5u, 10u}) {  // and once more past the switch
      const Tensor found = decoder.read(0, ids.subspan(static_cast<std::size_t>(decoder.length()), more / 2));
      const auto length = static_cast<std::size_t>(decoder.length());
      const Tensor whole = model.forward(Tensor::from(ids.first(length), {static_cast<std::int64_t>(length)}));
      expect_of_largest(found, whole.select(-2, -1), 2e-6, std::to_string(length));
    }
  }
}

// Keys in a cache would have to be turned anew with each token.
TEST(DynamicRope, IsRefusedWhereItsFrequenciesChange) {
  LanguageModelConfig config = open_pretrained(kData / "mistral").config;
  for (LayerConfig& layer : config.layers) layer.window = 0;
  config.ropes[0].type = RopeType::dynamic, config.ropes[0].factor = 2, config.ropes[0].max_position_embeddings = 8;
  Generator rng(3);
  LanguageModel model(config, rng);
  Decoder decoder(model);
  const Ids ids{1, 2, 3, 4, 5, 6, 7, 8};
  const Tensor whole = model.forward(Tensor::from(std::span(ids), {8}));
  expect_of_largest(decoder.read(0, ids), whole.select(-2, -1), 2e-6, "as trained");
  expect_error(Error::Kind::shape, {"max_position_embeddings = 8", "found 9"}, [&] { decoder.read(Ids{9}); });
  EXPECT_EQ(decoder.length(), 8);
}

}  // namespace
}  // namespace attn::test
