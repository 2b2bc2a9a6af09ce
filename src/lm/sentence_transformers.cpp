// Reads what sentence-transformers puts beside an encoder: how a text becomes its vector.
#include <algorithm>
#include <array>
#include <string>

#include "attn/encoder.hpp"
#include "attn/error.hpp"
#include "attn/gguf.hpp"
#include "io/file.hpp"
#include "io/json_object.hpp"
#include "io/passed_over.hpp"
#include "lm/gguf_encoder.hpp"

namespace attn {
namespace {

namespace files = std::filesystem;

// What a Transformer's own file may be called: the first of these that says anything counts.
constexpr std::array<std::string_view, 7> kSentenceConfigs{
    "sentence_bert_config.json",      "sentence_roberta_config.json", "sentence_distilbert_config.json",
    "sentence_camembert_config.json", "sentence_albert_config.json",  "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json"};

// The keys of these files and of config_sentence_transformers.json.
constexpr std::array<io::PassedOver, 6> kSentencePassedOver{
    {{"__version__ similarity_fn_name prompts", "", "who made the files, and what is chosen by name alone"},
     {"do_lower_case", "[false]", "texts are taken as they stand"},
     {"default_prompt_name", "[]", "it names a text that is put before each, which attn embed does not do"},
     {"truncate_dim", "[]", "attn embed gives whole vectors, whose first numbers you can take"},
     {"transformer_task model_type module_output_name",
      R"(["feature-extraction", "SentenceTransformer", "token_embeddings"])", "it would be another kind of model"},
     {"modality_config model_args tokenizer_args config_args processor_kwargs model_kwargs config_kwargs",
      R"([{}, {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}])",
      "it would be another kind of model"}}};

// The keys of a module of modules.json.
constexpr std::array<io::PassedOver, 1> kModulePassedOver{
    {{"idx name", "", "modules act in the list's order, whatever they are called"}}};

// The keys of 1_Pooling/config.json.
constexpr std::array<io::PassedOver, 3> kPoolingPassedOver{
    {{"word_embedding_dimension embedding_dimension", "", "the model's own width"},
     {"include_prompt", "[true]", "there is no prompt"},
     {"pooling_mode_*", "[false]", "attn has the mean and the first token's"}}};

std::string json_in(const files::path& path) {
  return std::string(io::as_text(io::read_file(path, kLoadEncoder).bytes()));
}

// Calls `take` with the object in a file, and then looks for keys that nobody read.
template <class F>
void read(const files::path& path, std::span<const io::PassedOver> passed_over, const F& take) {
  const std::string source = io::source_name(path), text = json_in(path);
  const io::Origin origin{kLoadEncoder, source};
  const io::JsonObject json(std::string_view(text), origin);
  take(json);
  json.finish({passed_over});
}

template <class F>
void read_if_there(const files::path& path, std::span<const io::PassedOver> passed_over, const F& take) {
  if (files::exists(path)) read(path, passed_over, take);
}

// Whether modules.json ends with a division by the length. What else a text would go through, or in another order, is
// refused, and so is a module in another folder.
bool normalises(const files::path& modules) {
  constexpr std::array<std::array<std::string_view, 2>, 3> expected{
      {{"Transformer", ""}, {"Pooling", "1_Pooling"}, {"Normalize", "2_Normalize"}}};
  const std::string source = io::source_name(modules), text = json_in(modules);
  const io::Origin origin{kLoadEncoder, source};
  const auto list = io::parse_json(text, nullptr, origin);
  if (!list.is_array()) origin.fail("a list of modules", list.type_name());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const io::JsonObject module(list[i], origin);
    const std::string type = module.text("type", ""), path = module.text("path", "");
    if (i >= expected.size() || !type.ends_with(std::string(".").append(expected[i][0])))
      origin.fail("the modules Transformer, Pooling and Normalize alone, in this order", io::in_quotes(type));
    if (path != expected[i][1])
      origin.fail("the path " + io::in_quotes(expected[i][1]) + " of the module " + std::string(expected[i][0]),
                  io::in_quotes(path));
    module.finish({kModulePassedOver});
  }
  if (list.size() < 2) origin.fail("a module Pooling behind the Transformer", "none");
  return list.size() == expected.size();
}

Pooling pooling_of(const io::JsonObject& json) {
  const bool said = json.find("pooling_mode") != nullptr;
  const std::string mode = json.text("pooling_mode", "");
  const bool mean = said ? mode == "mean" : json.flag("pooling_mode_mean_tokens", false);
  const bool first = said ? mode == "cls" : json.flag("pooling_mode_cls_token", false);
  if (mean != first) return mean ? Pooling::mean : Pooling::first;
  if (said) json.wrong("pooling_mode", "mean or cls", mode);
  if (mean)
    json.wrong("pooling_mode_cls_token", "false beside pooling_mode_mean_tokens, as attn follows one mode", true);
  json.finish({kPoolingPassedOver});  // which names another mode
  json.wrong("pooling_mode_mean_tokens", "true, or else pooling_mode_cls_token", mean);
}

// Returns where sentence-transformers cuts texts: what its own file says, or else what the tokenizer's does.
std::int64_t longest(const files::path& folder) {
  std::int64_t tokens = 0;
  bool said = false;
  for (auto name = kSentenceConfigs.begin(); !said && name != kSentenceConfigs.end(); ++name) {
    read_if_there(folder / *name, kSentencePassedOver, [&](const io::JsonObject& json) {
      said = !json.json().empty();
      tokens = json.size("max_seq_length", 0);
      if (tokens == 1) json.wrong("max_seq_length", "at least 2, for the marks around a text", tokens);
    });
  }
  const files::path config = folder / "tokenizer_config.json";
  if (tokens > 0 || !files::exists(config)) return tokens > 0 ? tokens : kNoLongest;
  const std::string source = io::source_name(config), text = json_in(config);
  const io::Origin origin{kLoadEncoder, source};
  const io::JsonObject json(std::string_view(text), origin);
  const char* const key = json.has("model_max_length") ? "model_max_length" : "max_len";  // as transformers does
  const auto most = json.number(key, static_cast<double>(kNoLongest), 2, 1e300);
  return static_cast<std::int64_t>(std::min(most, static_cast<double>(kNoLongest)));
}

}  // namespace

EmbeddingSettings embedding_settings(const files::path& path) {
  if (io::is_gguf(path)) return gguf_embedding_settings(io::Gguf::open(path), io::source_name(path));
  if (std::error_code ignored; !files::is_directory(path, ignored)) {
    throw Error(Error::Kind::file, "embedding_settings", "an encoder's folder, or its GGUF file",
                "none at " + io::source_name(path));
  }
  EmbeddingSettings settings;
  const files::path modules = path / "modules.json";
  if (!files::exists(modules)) return settings;
  settings.normalised = normalises(modules);
  settings.longest = longest(path);
  read_if_there(path / "config_sentence_transformers.json", kSentencePassedOver, [](const io::JsonObject&) {});
  read(path / "1_Pooling" / "config.json", kPoolingPassedOver,
       [&](const io::JsonObject& json) { settings.pooling = pooling_of(json); });
  return settings;
}

}  // namespace attn
