// A released model whose numbers are absurd is refused before memory is taken for them, or it computes.
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "attn/generate.hpp"
#include "core/memory_limit.hpp"
#include "lm/gguf_bytes.hpp"
#include "lm/helpers.hpp"

namespace attn::test {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kAbsurd[] = {0, -1, std::int64_t{1} << 31, std::numeric_limits<std::int64_t>::max()};

// Loads and computes with and without a cache, or throws Error. True when it was loaded.
bool loads_or_refuses(const fs::path& path, std::string* refusal = nullptr) {
  const MemoryLimit limit(512);
  try {
    LanguageModel model = load_language_model(path);
    const std::vector<std::vector<std::int64_t>> prompts{{1, 2, 3}, {4}};
    try {
      model.forward(integers(prompts[0], {1, 3}));
      generate(model, prompts, {.tokens = 3}, 1);
    } catch (const Error&) {
    }
    return true;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("expected "));
    if (refusal) *refusal = error.what();
    return false;
  }
}

// Whole numbers of a config, wherever they lie in it, and those that it may have.
std::vector<std::string> whole_numbers(const Json& config) {
  std::vector<std::string> found;
  const Json flat = config.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    if (value.is_number_integer() || value.is_null()) found.push_back(pointer);
  }
  for (const char* key :
       {"head_dim", "sliding_window", "sliding_window_pattern", "no_rope_layer_interval", "eos_token_id",
        "max_window_layers", "original_max_position_embeddings", "num_key_value_heads"}) {
    if (!config.contains(key)) found.push_back("/" + std::string(key));
  }
  return found;
}

class Absurd : public testing::TestWithParam<std::string> {};

TEST_P(Absurd, NumbersOfAConfig) {
  const Folder folder;
  for (const auto& entry : fs::directory_iterator(kData / GetParam())) {
    fs::copy_file(entry, fs::path(folder) / entry.path().filename());
  }
  const Json config = Json::parse(read(folder / "config.json"));
  int refused = 0;
  for (const std::string& pointer : whole_numbers(config)) {
    for (const std::int64_t number : kAbsurd) {
      SCOPED_TRACE(pointer + " = " + std::to_string(number));
      Json changed = config;
      changed[Json::json_pointer(pointer)] = number;
      std::ofstream(folder / "config.json") << changed;
      refused += !loads_or_refuses(folder);
    }
  }
  EXPECT_GT(refused, 20);
  std::ofstream(folder / "config.json") << config;
  EXPECT_TRUE(loads_or_refuses(folder));
}

INSTANTIATE_TEST_SUITE_P(All, Absurd, testing::ValuesIn(families()), [](const auto& family) { return family.param; });

class AbsurdGguf : public testing::TestWithParam<const char*> {
 protected:
  bool loads(const GgufBytes& file) {
    std::ofstream(folder_ / "x.gguf", std::ios::binary) << file.str();
    std::string refusal;
    const bool is_loaded = loads_or_refuses(folder_ / "x.gguf", &refusal);
    for (const std::string& word : words(refusal)) {
      EXPECT_FALSE(keys_.contains(word)) << word << " is a key of config.json, which this file has not: " << refusal;
    }
    return is_loaded;
  }

  static std::vector<std::string> words(const std::string& text) {
    const std::regex word("[A-Za-z0-9_.]+");
    return {std::sregex_token_iterator(text.begin(), text.end(), word), {}};
  }
  // Returns the keys of all families' configs, but for those that could be words of English, too.
  static std::set<std::string> keys_of_configs() {
    std::set<std::string> keys{"original_max_position_embeddings", "rope_local_base_freq", "sliding_window"};
    for (const std::string& family : families()) {
      const Json config = Json::parse(read(kData / family / "config.json"));
      for (const auto& [key, value] : config.items()) {
        if (key.find('_') != key.npos) keys.insert(key);
      }
    }
    return keys;
  }

  const std::set<std::string> keys_ = keys_of_configs();

  const GgufBytes file_{read(kData / "gguf" / (std::string(GetParam()) + ".gguf"))};
  const Folder folder_;
};

TEST_P(AbsurdGguf, NumbersOfTheMetadata) {
  std::vector<std::string> keys{"general.alignment"};
  for (const auto& [key, value] : file_.metadata) {
    if (std::holds_alternative<std::int64_t>(value) || std::holds_alternative<double>(value)) keys.push_back(key);
  }
  const auto architecture = std::get<std::string>(file_.metadata.at("general.architecture"));
  for (const char* key : {"attention.key_length", "rope.dimension_count", "rope.scaling.original_context_length",
                          "attention.sliding_window", "attention.head_count_kv"}) {
    keys.push_back(architecture + "." + key);
  }
  int refused = 0;
  for (const std::string& key : keys) {
    for (const std::int64_t number : kAbsurd) {
      SCOPED_TRACE(key + " = " + std::to_string(number));
      GgufBytes changed = file_;
      io::GgufValue& value = changed.metadata[key];
      value = std::holds_alternative<double>(value) ? io::GgufValue(static_cast<double>(number)) : number;
      refused += !loads(changed);
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_TRUE(loads(file_));
}

// Floating values that are none would otherwise become a config's defaults.
TEST_P(AbsurdGguf, NumbersThatAreNone) {
  for (const auto& [key, value] : file_.metadata) {
    if (!std::holds_alternative<double>(value)) continue;
    for (const double number : {kNan, kInf, -kInf}) {
      GgufBytes changed = file_;
      changed.metadata[key] = number;
      EXPECT_FALSE(loads(changed)) << key << " " << number;
    }
  }
}

TEST_P(AbsurdGguf, SizesOfTensors) {
  for (std::size_t i = 0; i < file_.tensors.size(); i += 5) {
    for (std::size_t axis = 0; axis < file_.tensors[i].sizes.size(); ++axis) {
      for (const std::int64_t number : kAbsurd) {
        SCOPED_TRACE(file_.tensors[i].name + " " + std::to_string(number));
        GgufBytes changed = file_;
        changed.tensors[i].sizes[axis] = static_cast<std::uint64_t>(number);
        EXPECT_FALSE(loads(changed));
      }
    }
  }
}

// Each frequency has a factor: a list of others is refused before it becomes a config's.
TEST(AbsurdFactors, AreRefused) {
  GgufBytes file(read(kData / "gguf/llama3.gguf"));
  const auto factors = std::ranges::find(file.tensors, "rope_freqs.weight", &GgufBytes::Entry::name);
  ASSERT_NE(factors, file.tensors.end());
  constexpr std::uint64_t many = 1 << 20;
  file.data.resize((file.data.size() + 31) / 32 * 32);
  factors->sizes = {32 * many}, factors->type = 2, factors->begin = file.data.size();  // Q4_0: 18 bytes of 32
  file.data.resize(file.data.size() + 18 * many);
  const Folder folder;
  std::ofstream(folder / "x.gguf", std::ios::binary) << file.str();
  const MemoryLimit limit(512);
  expect_error(Error::Kind::data, {"rope_freqs.weight"}, [&] { load_language_model(folder / "x.gguf"); });
}

INSTANTIATE_TEST_SUITE_P(All, AbsurdGguf,
                         testing::Values("llama", "llama3", "qwen2", "qwen3", "gemma2", "gemma3", "smollm3", "olmo2",
                                         "olmo3", "yarn", "phi3", "phi3_window", "granite", "minicpm3",
                                         "minicpm3_factors", "qwen35"),
                         [](const auto& file) { return std::string(file.param); });

}  // namespace
}  // namespace attn::test
