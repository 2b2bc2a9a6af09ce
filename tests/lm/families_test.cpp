// Each family beside what transformers computes (make_models.py): logits, gradients, and greedy tokens.
#include "attn/generate.hpp"
#include "lm/helpers.hpp"

namespace attn::test {
namespace {

// transformers has one matrix for several of ours: what each is called there, and where its rows begin.
struct Fused {
  std::string part, whole;
  std::int64_t row;
};

std::vector<Fused> fused_in(const std::string& family, const LanguageModelConfig& c, std::int64_t rows) {
  if (family == "phi3") {
    return {{"q_proj", "qkv_proj", 0},
            {"k_proj", "qkv_proj", 2 * rows},
            {"v_proj", "qkv_proj", 3 * rows},
            {"gate_proj", "gate_up_proj", 0},
            {"up_proj", "gate_up_proj", rows}};
  }
  if (!c.gated_delta) return {};
  const std::int64_t keys = c.gated_delta->keys();
  return {{"in_proj_q", "in_proj_qkv", 0}, {"in_proj_k", "in_proj_qkv", keys}, {"in_proj_v", "in_proj_qkv", 2 * keys}};
}

class Families : public testing::TestWithParam<std::string> {
 protected:
  Families() : folder_(kData / GetParam()), golden_(io::load(folder_ / "golden.safetensors")) {}

  const Tensor& golden(const std::string& name) const {
    const Tensor* found = golden_.find(name);
    EXPECT_NE(found, nullptr) << name;
    return *found;
  }

  fs::path folder_;
  io::NamedTensors golden_;
};

TEST_P(Families, HaveTransformersLogits) {
  LanguageModel model = load_language_model(folder_);
  EXPECT_EQ(model.config().family, GetParam());
  expect_of_largest(model.forward(golden("ids")), golden("logits"), 2e-5, "logits");
  // A text alone, shorter than those beside it.
  const Tensor one = golden("ids").select(0, 1).slice(0, 0, 7);
  expect_of_largest(model.forward(one), golden("logits").select(0, 1).slice(0, 0, 7), 2e-5, "one text");
}

TEST_P(Families, HaveTransformersGradients) {
  LanguageModel model = load_language_model(folder_);
  model.forward(golden("ids"));
  model.backward(golden("d_logits"));
  for (const Parameter* p : model.parameters()) {
    std::string name = "grad." + p->name;
    std::int64_t first = 0;
    for (const Fused& fused : fused_in(GetParam(), model.config(), p->value.size(0))) {
      const auto at = name.find("." + fused.part + ".");
      if (at == std::string::npos) continue;
      name.replace(at + 1, fused.part.size(), fused.whole);
      first = fused.row;
      break;
    }
    const Tensor all = golden(name);
    const bool is_part = name != "grad." + p->name;
    expect_of_largest(p->grad, is_part ? all.slice(0, first, first + p->value.size(0)) : all, 1e-4, name);
  }
}

TEST_P(Families, WriteTransformersTokensOnACache) {
  LanguageModel model = load_language_model(folder_);
  for (const std::int64_t batch : {std::int64_t{1}, std::int64_t{3}}) {
    for (std::int64_t first = 0; first < 3; first += batch) {
      Decoder decoder(model, batch);
      std::vector<std::int64_t> next;
      std::vector<std::vector<std::int64_t>> found(static_cast<std::size_t>(batch));
      for (std::int64_t b = 0; b < batch; ++b) {
        const std::string i = std::to_string(first + b);
        const Tensor logits = decoder.read(b, ids_of(golden("prompt." + i)));
        expect_of_largest(logits, golden("next." + i), 2e-5, "after the prompt");
        next.push_back(candidates(logits, {.temperature = 0})[0].id);
      }
      for (int step = 0; step < 40; ++step) {
        for (std::size_t b = 0; b < next.size(); ++b) found[b].push_back(next[b]);
        const Tensor logits = decoder.read(next);
        for (std::size_t b = 0; b < next.size(); ++b) {
          next[b] = candidates(logits.select(0, static_cast<std::int64_t>(b)), {.temperature = 0})[0].id;
        }
      }
      for (std::int64_t b = 0; b < batch; ++b) {
        EXPECT_EQ(found[static_cast<std::size_t>(b)], ids_of(golden("greedy." + std::to_string(first + b)))) << b;
      }
    }
  }
}

TEST_P(Families, WriteTheSameTokensWithoutACache) {
  LanguageModel model = load_language_model(folder_);
  for (const char* i : {"0", "1", "2"}) {
    std::vector<std::int64_t> text = ids_of(golden(std::string("prompt.") + i));
    for (const std::int64_t id : ids_of(golden(std::string("greedy.") + i))) {
      const Tensor logits = model.forward(integers(text));
      ASSERT_EQ(candidates(logits.select(0, logits.size(0) - 1), {.temperature = 0})[0].id, id) << text.size();
      text.push_back(id);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Families, testing::ValuesIn(families()), [](const auto& family) { return family.param; });

TEST(Gguf, HasTheLogitsOfTheModelInIt) {
  for (const char* architecture :
       {"llama", "llama3", "qwen2", "qwen3", "yarn", "gemma2", "largest", "gemma3", "smollm3", "olmo2", "olmo3", "phi3",
        "phi3_window", "granite", "minicpm3", "minicpm3_factors", "qwen35"}) {
    const fs::path file = kData / "gguf" / (std::string(architecture) + ".gguf");
    LanguageModel model = load_language_model(file);
    const auto golden = io::load(kData / "gguf" / (std::string(architecture) + ".safetensors"));
    // Each layer rounds: of 46 the scalar unit, which has no multiply-add, is 5.3e-5 away.
    const double tolerance = 2e-5 * std::max(1.0, static_cast<double>(model.config().layers.size()) / 8);
    expect_of_largest(model.forward(*golden.find("ids")), *golden.find("logits"), tolerance, architecture);
    EXPECT_EQ(model.config().end_ids, std::vector<std::int64_t>{7});
  }
}

}  // namespace
}  // namespace attn::test
