// An encoder of BERT's config.json and its tensors, wherever they are.
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "attn/encoder.hpp"
#include "io/file.hpp"
#include "io/json_object.hpp"
#include "io/passed_over.hpp"
#include "lm/config_readers.hpp"
#include "lm/gguf_encoder.hpp"
#include "lm/stored_tensors.hpp"

namespace attn {
namespace {

constexpr std::int64_t kMostBlocks = 4096;

constexpr std::array<io::PassedOver, 1> kBertPassedOver{
    {{"tie_word_embeddings pooler_* directionality", "", "how it was trained, and parts beside the encoder"}}};

Activation gelu_of(const io::JsonObject& json) {
  const std::string name = json.text("hidden_act", "gelu");
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  json.wrong("hidden_act", "gelu, gelu_new or gelu_pytorch_tanh", name);
}

// A tensor's name in BertModel; empty for what is beside the encoder. Norms of the first files have TensorFlow's names.
std::string encoder_name(std::string name) {
  constexpr std::string_view prefix = "bert.";
  if (name.starts_with(prefix)) name.erase(0, prefix.size());
  for (const auto& [older, newer] : {std::pair<std::string_view, const char*>{"gamma", "weight"}, {"beta", "bias"}}) {
    if (name.ends_with(std::string("LayerNorm.").append(older)))
      name.replace(name.size() - older.size(), older.size(), newer);
  }
  const bool mine = name.starts_with("embeddings.") || name.starts_with("encoder.");
  return mine && name != "embeddings.position_ids" ? name : std::string();
}

bool is_beside(const std::string& name) {
  for (const char* part : {"pooler.", "bert.pooler.", "cls.", "cls_", "classifier.", "qa_outputs."}) {
    if (name.starts_with(part)) return true;
  }
  return name.ends_with("embeddings.position_ids");
}

}  // namespace

EncoderConfig parse_encoder_config(std::string_view text, std::string_view source) {
  return encoder_config_of(text, {"parse_encoder_config", source});
}

EncoderConfig encoder_config_of(std::string_view text, const io::Origin& origin) {
  const io::JsonObject json(text, origin);
  json.require("model_type", "bert");
  json.require("position_embedding_type", "absolute");
  EncoderConfig config;
  LanguageModelConfig& c = config.model;
  c.family = "bert";
  c.vocab_size = json.size("vocab_size", 30522);
  c.width = json.size("hidden_size", 768);
  c.inner_width = json.size("intermediate_size", 3072);
  c.heads = c.kv_heads = json.size("num_attention_heads", 12);
  c.context_length = json.size("max_position_embeddings", 512);
  const std::int64_t layers = json.size("num_hidden_layers", 12);
  if (layers > kMostBlocks) json.wrong("num_hidden_layers", "at most " + std::to_string(kMostBlocks), layers);
  if (c.width % c.heads != 0) json.wrong("hidden_size", "a multiple of num_attention_heads", c.width);
  c.layers.assign(static_cast<std::size_t>(layers), {.window = 0, .rope = std::nullopt});
  c.head_dim = c.width / c.heads;
  c.learned_positions = true;
  config.token_types = json.size("type_vocab_size", 2);
  c.norm = NormForm::layer;
  c.epsilon = json.number("layer_norm_eps", 1e-12, 1e-300, 1);
  c.pre_norm = false, c.sum_norm = true, c.causal = false, c.gated = false;
  c.qkv_bias = c.out_bias = c.feed_forward_bias = true;
  c.activation = gelu_of(json);
  c.dropout = json.number("hidden_dropout_prob", 0.1, 0, 1);
  if (json.number("attention_probs_dropout_prob", 0.1, 0, 1) != c.dropout) {
    json.wrong("attention_probs_dropout_prob", "the same as hidden_dropout_prob",
               json.number("attention_probs_dropout_prob", 0.1, 0, 1));
  }
  json.finish({kBertPassedOver, kConfigPassedOver, kMoreConfigPassedOver});
  c.json = std::string(text);
  return config;
}

Encoder encoder_of(EncoderFiles files, const io::Origin& origin) {
  const EncoderConfig& config = files.config;
  const auto in_file = [&files](const std::string& name) { return own_name(files.names, name); };
  std::map<std::string, StoredTensor> tensors;
  for (StoredTensor& tensor : files.tensors) {
    const std::string name = encoder_name(tensor.name);
    if (name.empty() && !is_beside(tensor.name))
      origin.fail("only tensors of a BERT", io::in_quotes(in_file(tensor.name)));
    if (!name.empty() && !tensors.emplace(name, std::move(tensor)).second) {
      origin.fail("every tensor once", io::in_quotes(in_file(name)) + " twice");
    }
  }
  if (config.model.layers.size() > tensors.size()) {
    origin.fail("the tensors of " + std::to_string(config.model.layers.size()) + " layers",
                std::to_string(tensors.size()));
  }
  Encoder encoder(config, Initial::none);
  std::set<std::string> known;
  for (Parameter* p : encoder.parameters()) {
    const auto found = tensors.find(p->name);
    if (found == tensors.end()) origin.fail("a tensor " + in_file(p->name), "none");
    const Shape shape = p->value.shape();
    if (!(found->second.shape == shape)) {
      origin.fail(in_file(p->name) + " of shape " + shape.str() + ", as the config says", found->second.shape.str());
    }
    known.insert(p->name);
  }
  for (const auto& [name, tensor] : tensors) {
    if (!known.contains(name)) {
      origin.fail("only tensors of a BERT of " + std::to_string(config.model.layers.size()) + " layers",
                  io::in_quotes(in_file(name)));
    }
  }
  for (Parameter* p : encoder.parameters()) p->value = tensors.at(p->name).load(DType::f32);
  return encoder;
}

Encoder load_encoder(std::span<const std::byte> bytes, std::string_view config, std::string_view source) {
  const io::Origin origin{kLoadEncoder, source};
  EncoderFiles files{encoder_config_of(config, {kLoadEncoder, "config.json"}), {}};
  const auto memory = std::make_shared<const io::RandomAccessFile>(bytes, source);
  add_shard(files.tensors, std::make_shared<const io::SafetensorsFile>(memory));
  return encoder_of(std::move(files), origin);
}

}  // namespace attn
