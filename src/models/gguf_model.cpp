#include "models/gguf_model.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "attn/gguf.hpp"
#include "io/bytes.hpp"
#include "io/file.hpp"
#include "models/gguf_metadata.hpp"

namespace attn {
namespace {

using Json = nlohmann::ordered_json;
using io::Gguf;
using io::GgufTensor;

// What an architecture's files do that others do not.
struct Architecture {
  const char *name, *family;
  bool permuted = false;  // queries and keys are laid out for interleaved rotation
  bool gemma = false;     // norms hold 1 + w
  bool joined = false;    // the gate's and the upper projection are one matrix
};

constexpr std::array<Architecture, 9> kArchitectures{{{"llama", "llama", true},
                                                      {"qwen2", "qwen2"},
                                                      {"qwen3", "qwen3"},
                                                      {"gemma2", "gemma2", false, true},
                                                      {"gemma3", "gemma3_text", false, true},
                                                      {"smollm3", "smollm3", true},
                                                      {"olmo2", "olmo2"},
                                                      {"phi3", "phi3", false, false, true},
                                                      {"granite", "granite", true}}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kLayerNames{
    {{"attn_q", "self_attn.q_proj"},
     {"attn_qkv", "self_attn.qkv_proj"},
     {"attn_k", "self_attn.k_proj"},
     {"attn_v", "self_attn.v_proj"},
     {"attn_output", "self_attn.o_proj"},
     {"attn_q_norm", "self_attn.q_norm"},
     {"attn_k_norm", "self_attn.k_norm"},
     {"ffn_gate", "mlp.gate_proj"},
     {"ffn_up", "mlp.up_proj"},
     {"ffn_down", "mlp.down_proj"},
     {"attn_norm", "input_layernorm"},
     {"post_attention_norm", "post_attention_layernorm"},
     {"post_ffw_norm", "post_feedforward_layernorm"},
     {"ffn_norm", ""}}};  // by the family

const Architecture& architecture_of(const GgufMetadata& metadata) {
  const std::string name = metadata.text("general.architecture");
  const auto* at = std::ranges::find_if(kArchitectures, [&](const Architecture& a) { return name == a.name; });
  if (at != kArchitectures.end()) return *at;
  std::string known;
  for (const Architecture& a : kArchitectures) known.append(known.empty() ? "" : ", ").append(a.name);
  metadata.origin().fail("an architecture among " + known, io::in_quotes(name));
}

// "blk.3.attn_q.weight" → "model.layers.3.self_attn.q_proj.weight"; empty for what is not known.
std::string hugging_face_name(std::string_view name, const Architecture& a) {
  if (name == "token_embd.weight") return "model.embed_tokens.weight";
  if (name == "output_norm.weight") return "model.norm.weight";
  if (name == "output.weight") return "lm_head.weight";
  constexpr std::string_view block = "blk.";
  if (!name.starts_with(block)) return {};
  const std::size_t dot = name.find('.', block.size()), last = name.rfind('.');
  if (dot == std::string_view::npos || last <= dot) return {};
  const std::string_view layer = name.substr(block.size(), dot - block.size()),
                         part = name.substr(dot + 1, last - dot - 1);
  const auto* at = std::ranges::find_if(kLayerNames, [&](const auto& pair) { return pair.first == part; });
  if (at == kLayerNames.end()) return {};
  std::string_view ours = at->second;
  if (part == "ffn_up" && a.joined) ours = "mlp.gate_up_proj";
  if (part == "ffn_norm") ours = a.gemma ? "pre_feedforward_layernorm" : "post_attention_layernorm";
  return std::string("model.layers.").append(layer).append(".").append(ours).append(name.substr(last));
}

void add_rope(Json& config, const GgufMetadata& metadata, const Gguf& file) {
  const double theta = metadata.number("rope.freq_base", 10000);
  config["rope_theta"] = theta;
  const std::string type = metadata.text_or("rope.scaling.type", "none");
  const double factor = metadata.number("rope.scaling.factor", 1);
  if (type == "linear" || type == "yarn") {
    config["rope_scaling"] = {{"rope_type", type}, {"factor", factor}};
    if (const auto original = metadata.whole("rope.scaling.original_context_length", 0); original > 0) {
      config["rope_scaling"]["original_max_position_embeddings"] = original;
    }
  } else if (type != "none") {
    metadata.origin().fail("rope.scaling.type none, linear or yarn", io::in_quotes(type));
  }
  const auto list_of = [&](const char* name) {
    Json list = Json::array();
    const GgufTensor* factors = file.find(name);
    if (!factors) return list;
    const std::int64_t most = config["head_dim"].get<std::int64_t>() / 2;  // one for each pair that turns
    const Shape& shape = factors->shape;
    if (shape.size() != 1 || shape[0] < 1 || shape[0] > most) {
      metadata.origin().fail(std::string(name) + " of 1 to " + std::to_string(most) + " numbers", shape.str());
    }
    const Tensor values = file.load(*factors);
    for (std::int64_t i = 0; i < values.numel(); ++i) list.push_back(values.data<float>()[i]);
    return list;
  };
  // Llama 3's scaling, as a factor for each frequency.
  if (const Json list = list_of("rope_freqs.weight"); !list.empty()) {
    config["rope_scaling"] = {{"rope_type", "longrope"}, {"short_factor", list}, {"long_factor", list}};
    config["rope_scaling"]["attention_factor"] = 1.0;
    config["rope_scaling"]["original_max_position_embeddings"] = config["max_position_embeddings"];
  }
  // Phi-3's, for short texts and for long ones.
  if (const Json list = list_of("rope_factors_short.weight"); !list.empty()) {
    config["rope_scaling"] = {
        {"rope_type", "longrope"}, {"short_factor", list}, {"long_factor", list_of("rope_factors_long.weight")}};
    config["rope_scaling"]["attention_factor"] = metadata.number("rope.scaling.attn_factor", 1);
    config["original_max_position_embeddings"] = metadata.whole("rope.scaling.original_context_length");
  }
}

// Phi-3 turns a part of each head; its files do not say how large a head is.
void add_phi3(Json& config, const GgufMetadata& metadata) {
  const std::int64_t width = config["hidden_size"], heads = config["num_attention_heads"];
  const std::int64_t head_dim = metadata.whole("attention.key_length", width / heads);
  const std::int64_t turned = metadata.whole("rope.dimension_count", head_dim);
  config["head_dim"] = head_dim;
  if (turned != head_dim) {
    config["partial_rotary_factor"] = static_cast<double>(turned) / static_cast<double>(head_dim);
  }
  const std::int64_t window = metadata.whole("attention.sliding_window", 0);
  config["sliding_window"] = window > 0 ? Json(window) : Json(nullptr);
}

void add_granite(Json& config, const GgufMetadata& metadata) {
  config["embedding_multiplier"] = metadata.number("embedding_scale", 1);
  config["residual_multiplier"] = metadata.number("residual_scale", 1);
  config["attention_multiplier"] = metadata.number("attention.scale", 1);
  config["logits_scaling"] = metadata.number("logit_scale", 1);
}

// What the files of Gemma do not say: released sizes but the largest scale queries by their head's dimension.
void add_gemma(Json& config, const GgufMetadata& metadata, bool third) {
  const std::int64_t layers = config["num_hidden_layers"], width = config["hidden_size"];
  const bool largest = layers == (third ? 62 : 46);
  const std::int64_t heads = config["num_attention_heads"], head_dim = config["head_dim"];
  config["query_pre_attn_scalar"] = largest ? width / heads : head_dim;
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["sliding_window"] = metadata.whole("attention.sliding_window", 4096);
  const auto cap = [&](const char* key, const char* from, double otherwise) {
    const double value = metadata.number(from, otherwise);
    config[key] = value > 0 ? Json(value) : Json(nullptr);
  };
  cap("attn_logit_softcapping", "attn_logit_softcapping", third ? 0 : 50);
  cap("final_logit_softcapping", "final_logit_softcapping", third ? 0 : 30);
  if (third) config["rope_local_base_freq"] = 10000.0;
}

Json config_of(const Gguf& file, const GgufMetadata& metadata, const Architecture& a) {
  const GgufTensor* embedding = file.find("token_embd.weight");
  if (!embedding || embedding->shape.size() != 2) metadata.origin().fail("a matrix token_embd.weight", "none");
  Json config{{"model_type", a.family}};
  config["vocab_size"] = embedding->shape[0];
  config["hidden_size"] = metadata.whole("embedding_length");
  config["intermediate_size"] = metadata.whole("feed_forward_length");
  config["num_hidden_layers"] = metadata.whole("block_count");
  config["max_position_embeddings"] = metadata.whole("context_length");
  const std::int64_t heads = metadata.whole("attention.head_count"), width = metadata.whole("embedding_length");
  if (heads < 1) metadata.origin().fail("attention.head_count of 1 or more", std::to_string(heads));
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = metadata.whole("attention.head_count_kv", heads);
  config["head_dim"] = metadata.whole("attention.key_length", metadata.whole("rope.dimension_count", width / heads));
  config["rms_norm_eps"] = metadata.number("attention.layer_norm_rms_epsilon", 1e-6);
  config["tie_word_embeddings"] = file.find("output.weight") == nullptr;
  const bool biased = file.find("blk.0.attn_q.bias") != nullptr && std::string_view(a.family) != "qwen2";
  if (biased) config["attention_bias"] = true;
  for (const auto& [ours, theirs] : {std::pair{"bos", "bos"}, {"eos", "eos"}, {"pad", "padding"}}) {
    const std::int64_t id = metadata.whole(std::string("tokenizer.ggml.") + theirs + "_token_id", -1);
    config[std::string(ours) + "_token_id"] = id < 0 ? Json(nullptr) : Json(id);
  }
  add_rope(config, metadata, file);
  const std::string_view name = a.name;
  if (a.gemma) add_gemma(config, metadata, name == "gemma3");
  if (name == "smollm3") config["no_rope_layer_interval"] = 4;  // of all released ones; files do not say it
  if (name == "phi3") add_phi3(config, metadata);
  if (name == "granite") add_granite(config, metadata);
  return config;
}

// Rows (heads · d, …) of interleaved pairs, in halves.
Tensor in_halves(const Tensor& rows, std::int64_t heads) {
  const std::int64_t half = rows.size(0) / heads / 2, columns = rows.numel() / rows.size(0);
  return rows.view({heads, half, 2, columns}).transpose(1, 2).contiguous().view(rows.shape());
}

StoredTensor stored(const std::shared_ptr<const Gguf>& file, const GgufTensor& tensor, const Architecture& a,
                    const LanguageModelConfig& config) {
  const std::string name = hugging_face_name(tensor.name, a);
  const bool queries = name.find("self_attn.q_proj") != std::string::npos;
  const bool turned = a.permuted && (queries || name.find("self_attn.k_proj") != std::string::npos);
  const bool less_one = a.gemma && name.ends_with("norm.weight");
  const std::int64_t heads = queries ? config.heads : config.kv_heads;
  const auto load = [file, tensor, turned, less_one, heads](DType dtype) {
    Tensor values = file->load(tensor, less_one ? DType::f32 : dtype);
    for (std::int64_t i = 0; less_one && i < values.numel(); ++i) values.data<float>()[i] -= 1;
    const bool divisible = values.rank() > 0 && values.size(0) % (2 * heads) == 0;  // else the shape is refused
    return turned && divisible ? in_halves(values, heads) : values.to(dtype);
  };
  return {name, std::string(io::name(tensor.type)), tensor.shape, tensor.bytes, load};
}

}  // namespace

PretrainedFiles open_gguf_model(const std::filesystem::path& path) {
  const auto file = std::make_shared<const Gguf>(Gguf::open(path));
  const std::string source = io::source_name(path);
  GgufMetadata metadata(*file, {"load_gguf", source});
  const Architecture& a = architecture_of(metadata);
  metadata.set_prefix(a.name);
  PretrainedFiles files;
  files.format = "gguf";
  files.config = parse_language_model_config(config_of(*file, metadata, a).dump(2) + "\n", source);
  for (const GgufTensor& tensor : file->tensors()) {
    if (tensor.name.starts_with("rope_f")) continue;  // rope_freqs and rope_factors: in the config
    if (hugging_face_name(tensor.name, a).empty()) {
      metadata.origin().fail(std::string("only tensors of architecture ") + a.name, io::in_quotes(tensor.name));
    }
    files.tensors.push_back(stored(file, tensor, a, files.config));
  }
  return files;
}

}  // namespace attn
