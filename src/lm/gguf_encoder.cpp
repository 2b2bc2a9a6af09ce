#include "lm/gguf_encoder.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "io/gguf_metadata.hpp"
#include "io/passed_over.hpp"
#include "lm/config_readers.hpp"
#include "lm/gguf_model.hpp"

namespace attn {
namespace {

using Json = io::JsonObject::Json;
using io::Gguf;
using io::GgufMetadata;
using io::GgufTensor;

constexpr const char* kBert = "bert";
constexpr const char* kPrefix = "bert.";
constexpr const char* kPooling = "pooling_type";

// Beside what all architectures may have.
constexpr std::array<io::PassedOver, 2> kEncoderPassedOver{
    {{"classifier.output_labels rope.freq_base", "", "heads for other tasks, and positions of other architectures"},
     {"*", "[]", "it would be another kind of model"}}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kEncoderNames{
    {{"token_embd", "embeddings.word_embeddings"},
     {"position_embd", "embeddings.position_embeddings"},
     {"token_types", "embeddings.token_type_embeddings"},
     {"token_embd_norm", "embeddings.LayerNorm"}}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kEncoderLayerNames{
    {{"attn_q", "attention.self.query"},
     {"attn_k", "attention.self.key"},
     {"attn_v", "attention.self.value"},
     {"attn_output", "attention.output.dense"},
     {"attn_output_norm", "attention.output.LayerNorm"},
     {"ffn_up", "intermediate.dense"},
     {"ffn_down", "output.dense"},
     {"layer_output_norm", "output.LayerNorm"}}};

// "blk.3.attn_q.weight" → "encoder.layer.3.attention.self.query.weight"; its own name for what is not known.
std::string hugging_face_name(const std::string& name) {
  constexpr std::string_view block = "blk.";
  const std::size_t last = std::min(name.rfind('.'), name.size());
  const std::string_view bare = std::string_view(name).substr(0, last), end = std::string_view(name).substr(last);
  const std::size_t dot = bare.find('.', block.size());
  const bool layered = bare.starts_with(block) && dot != bare.npos;
  const std::string_view ours =
      layered ? renamed(bare.substr(dot + 1), kEncoderLayerNames) : renamed(bare, kEncoderNames);
  if (ours.empty()) return name;
  const std::string_view layer = layered ? bare.substr(block.size(), dot - block.size()) : std::string_view();
  return (layered ? "encoder.layer." + std::string(layer) + "." : std::string()).append(ours).append(end);
}

// Rows of a table, which its own size tells.
std::int64_t rows(const Gguf& file, const char* name, const GgufMetadata& metadata) {
  const GgufTensor* table = file.find(name);
  if (!table || table->shape.size() != 2) metadata.origin().fail(std::string("a matrix ") + name, "none");
  return table->shape[0];
}

// hidden_act is the one that BERT has: files of this architecture do not say it.
EncoderConfig config_of(const Gguf& file, const GgufMetadata& metadata) {
  const std::int64_t heads = metadata.of_all_layers("attention.head_count"),
                     types = rows(file, "token_types.weight", metadata);
  const Json config{{"model_type", "bert"},
                    {"vocab_size", rows(file, "token_embd.weight", metadata)},
                    {"hidden_size", metadata.whole("embedding_length")},
                    {"intermediate_size", metadata.of_all_layers("feed_forward_length")},
                    {"num_hidden_layers", metadata.whole("block_count")},
                    {"num_attention_heads", heads},
                    {"max_position_embeddings", metadata.whole("context_length")},
                    {"type_vocab_size", types},
                    {"layer_norm_eps", metadata.number("attention.layer_norm_epsilon")}};
  metadata.require("vocab_size", config["vocab_size"]);
  metadata.require("tokenizer.ggml.token_type_count", types);
  if (metadata.of_all_layers("attention.head_count_kv", heads) != heads) {
    metadata.origin().fail("as many heads of keys as of queries",
                           io::text_of(*metadata.find("attention.head_count_kv")));
  }
  for (const char* const size : {"attention.key_length", "attention.value_length"}) {
    if (heads > 0) metadata.require(size, config["hidden_size"].get<std::int64_t>() / heads);
  }
  if (metadata.flag("attention.causal", true)) metadata.origin().fail("bert.attention.causal to be false", "true");
  metadata.find(kPooling);
  metadata.finish(kPrefix, kEncoderPassedOver);
  metadata.finish("general.", kGgufGeneralPassedOver);
  const io::KeyNames names = gguf_names(metadata);
  return encoder_config_of(config.dump(2) + "\n", {kLoadEncoder, metadata.origin().source, &names});
}

GgufMetadata metadata_of(const Gguf& file, std::string_view source) {
  GgufMetadata metadata(file, {kLoadEncoder, source}, kPrefix);
  const std::string name = metadata.text("general.architecture");
  if (name != kBert) metadata.origin().fail("a file of the architecture bert", io::in_quotes(name));
  return metadata;
}

}  // namespace

bool is_gguf_encoder(const Gguf& file) {
  const auto at = file.metadata().find("general.architecture");
  return at != file.metadata().end() && at->second == io::GgufValue(std::string(kBert));
}

EncoderFiles open_gguf_encoder(const std::shared_ptr<const Gguf>& file, std::string_view source) {
  EncoderFiles files{config_of(*file, metadata_of(*file, source)), {}};
  for (const GgufTensor& tensor : file->tensors()) {
    const auto load = [file, tensor](DType dtype) { return file->load(tensor, dtype); };
    files.tensors.push_back(
        {hugging_face_name(tensor.name), std::string(io::name(tensor.type)), tensor.shape, tensor.bytes, load});
    files.names.emplace(files.tensors.back().name, tensor.name);
  }
  const auto add = [&files](const std::string& name) { files.names.emplace(hugging_face_name(name), name); };
  for (const char* const end : {".weight", ".bias"}) {
    for (const auto& [part, ours] : kEncoderNames) add(std::string(part) + end);
    for (std::size_t i = 0; i < files.config.model.layers.size(); ++i)
      for (const auto& [part, ours] : kEncoderLayerNames)
        add("blk." + std::to_string(i) + "." + std::string(part) + end);
  }
  return files;
}

EmbeddingSettings gguf_embedding_settings(const Gguf& file, std::string_view source) {
  enum Type : std::int64_t { kMean = 1, kFirst = 2 };
  const GgufMetadata metadata = metadata_of(file, source);
  const std::int64_t type = metadata.whole(kPooling, kMean);
  if (type != kMean && type != kFirst) {
    metadata.origin().fail("bert.pooling_type 1, the mean, or 2, the first token's", std::to_string(type));
  }
  return {.pooling = type == kMean ? Pooling::mean : Pooling::first, .normalised = true};
}

}  // namespace attn
