// SmolLM2-135M-Instruct beside transformers (make_smollm2.py): real weights, which `make smollm2` fetches.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attn/generate.hpp"
#include "attn/tokenizer.hpp"
#include "lm/helpers.hpp"

namespace attn::test {
namespace {

class SmolLM2 : public testing::Test {
 protected:
  void SetUp() override {
#if defined(ATTN_SANITIZED) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "takes minutes under a sanitizer";
#endif
    if (!fs::exists(file_)) GTEST_SKIP() << file_ << " is not there: make smollm2";
  }

  const fs::path file_ = fs::path(ATTN_TEST_DATA) / "../../../build/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
  const io::NamedTensors golden_ = io::load(kData / "smollm2.safetensors");
};

TEST_F(SmolLM2, HasTransformersLogitsAndTokens) {
  LanguageModel model = load_language_model(file_);
  EXPECT_EQ(model.config().end_ids, std::vector<std::int64_t>{2});
  for (const char* i : {"0", "1", "2", "3", "4"}) {
    const auto golden = [&](const char* name) { return *golden_.find(std::string(name) + "." + i); };
    const std::vector<std::int64_t> prompt = ids_of(golden("prompt")), at = ids_of(golden("at"));
    Decoder decoder(model);
    const Tensor logits = decoder.read(0, prompt);
    Tensor some = Tensor::empty({golden("at").numel()});
    for (std::size_t j = 0; j < at.size(); ++j) {
      some.set({static_cast<std::int64_t>(j)}, logits.at({at[j]}));
    }
    expect_of_largest(some, golden("logits"), 1e-4, "logits");
    const std::vector<std::int64_t> expected = ids_of(golden("greedy"));
    const GenerateOptions options{.tokens = static_cast<std::int64_t>(expected.size()), .sampling = {.temperature = 0}};
    EXPECT_EQ(generate(model, std::span(&prompt, 1), options, 1)[0].ids, expected) << i;
  }
}

// In one batch of different lengths, which transformers would pad at the left, the texts are what they are alone. A
// pass without a cache over a whole text finds each of its 30 tokens the likeliest in its place.
TEST_F(SmolLM2, WritesTheSameInABatchAndWithoutACache) {
  LanguageModel model = load_language_model(file_);
  std::vector<std::vector<std::int64_t>> prompts;
  for (int i = 0; i < 5; ++i) prompts.push_back(ids_of(*golden_.find("prompt." + std::to_string(i))));
  const auto together = generate(model, prompts, {.tokens = 30, .sampling = {.temperature = 0}}, 1);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(together[i].ids, ids_of(*golden_.find("greedy." + std::to_string(i))));
    ASSERT_EQ(together[i].ids.size(), 30u);
    std::vector<std::int64_t> text = prompts[i];
    text.insert(text.end(), together[i].ids.begin(), together[i].ids.end());
    const auto count = static_cast<std::int64_t>(text.size());
    const Tensor logits = model.forward(integers(text));
    for (std::int64_t at = count - 31; at < count - 1; ++at) {
      EXPECT_EQ(candidates(logits.select(0, at), {.temperature = 0})[0].id, text[static_cast<std::size_t>(at) + 1]);
    }
  }
}

TEST_F(SmolLM2, HasTransformersIds) {
  const BPETokenizer tokenizer = BPETokenizer::load(file_);
  int texts = 0;
  for (; golden_.find("text." + std::to_string(texts)); ++texts) {
    const std::string i = std::to_string(texts);
    const Tensor bytes = *golden_.find("text." + i);
    const std::string text(reinterpret_cast<const char*>(bytes.raw()), static_cast<std::size_t>(bytes.numel()));
    EXPECT_EQ(tokenizer.encode(text), ids_of(*golden_.find("ids." + i))) << text;
  }
  EXPECT_EQ(texts, 20);
}

// Saved and read again it says the same; in bfloat16 it still knows the capital of France.
TEST_F(SmolLM2, IsSavedAndKeptInBfloat16) {
  const std::vector<std::int64_t> prompt = ids_of(*golden_.find("prompt.0"));
  LanguageModel model = load_language_model(file_, DType::bf16);
  const GenerateOptions options{.tokens = 3, .sampling = {.temperature = 0}};
  const auto found = generate(model, std::span(&prompt, 1), options, 1)[0].ids;
  EXPECT_EQ(found, (std::vector<std::int64_t>{7042, 30, 198})) << "Paris, a full stop and a new line";
  const Folder folder;
  save_language_model(folder, model);
  LanguageModel again = load_language_model(folder, DType::bf16);
  EXPECT_EQ(generate(again, std::span(&prompt, 1), options, 1)[0].ids, found);
}

// Rounding weights and products changes the loss little, on the twenty texts one after the other.
TEST_F(SmolLM2, LosesLittleByRounding) {
  std::vector<std::int64_t> all;
  for (int i = 0; i < 20; ++i) {
    const auto more = ids_of(*golden_.find("ids." + std::to_string(i)));
    all.insert(all.end(), more.begin(), more.end());
  }
  const auto count = static_cast<std::int64_t>(all.size()) - 1;
  const std::span<const std::int64_t> whole = all;
  const Tensor ids = Tensor::from(whole.first(all.size() - 1), {1, count});
  const Tensor targets = Tensor::from(whole.subspan(1), {1, count});
  double exact = 0;
  for (const std::optional<DType> dtype :
       {std::optional(DType::f32), std::optional(DType::bf16), std::optional(DType::i8), std::optional<DType>()}) {
    for (const Precision precision : {Precision::highest, Precision::high, Precision::medium}) {
      if (dtype && precision == Precision::high) continue;
      LanguageModel model = load_language_model(file_, dtype, precision);
      const double loss = model.evaluate(ids, targets);
      if (exact == 0) exact = loss;
      const std::string text = (dtype ? std::string(name(*dtype)) : "file") + "_" + std::string(name(precision));
      RecordProperty(text, std::to_string(loss));
      EXPECT_NEAR(loss, exact, 0.01) << text;
    }
  }
}

// Returns the relative entropy of the next token's chances, in nats (Kullback and Leibler 1951).
double relative_entropy(const Tensor& exact, const Tensor& found) {
  const auto log_sum = [](const Tensor& logits) {
    double sum = 0;
    for (std::int64_t i = 0; i < logits.numel(); ++i) sum += std::exp(logits.at({i}));
    return std::log(sum);
  };
  const double of_exact = log_sum(exact), of_found = log_sum(found);
  double entropy = 0;
  for (std::int64_t i = 0; i < exact.numel(); ++i) {
    const double log_p = exact.at({i}) - of_exact;
    entropy += std::exp(log_p) * (log_p - (found.at({i}) - of_found));
  }
  return entropy;
}

// Activations in bytes round at medium precision to 7 bits, and at high to 15.
TEST_F(SmolLM2, BytesMoveTheNextTokensChancesLittle) {
  LanguageModel exact = load_language_model(file_);
  for (const auto& [precision, bound] : {std::pair(Precision::high, 1e-5), std::pair(Precision::medium, 0.1)}) {
    LanguageModel rounded = load_language_model(file_, std::nullopt, precision);
    double largest = 0;
    for (const char* i : {"0", "1", "2", "3", "4"}) {
      const std::vector<std::int64_t> prompt = ids_of(*golden_.find(std::string("prompt.") + i));
      const double moved = relative_entropy(Decoder(exact).read(0, prompt), Decoder(rounded).read(0, prompt));
      largest = std::max(largest, moved);
    }
    RecordProperty(std::string(name(precision)), std::to_string(1e9 * largest));
    EXPECT_LT(largest, bound) << name(precision);
    EXPECT_GT(largest, bound / 1e4) << name(precision) << " rounded nothing";
  }
}

}  // namespace
}  // namespace attn::test
