#include "lm/gguf_model.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>

#include "attn/gguf.hpp"
#include "io/bytes.hpp"
#include "io/file.hpp"
#include "io/gguf_metadata.hpp"
#include "io/passed_over.hpp"
#include "lm/config_readers.hpp"
#include "lm/gguf_hybrid.hpp"

namespace attn {
namespace {

using Json = io::JsonObject::Json;
using io::Gguf;
using io::GgufMetadata;
using io::GgufTensor;

// An architecture, and what its files do that others do not.
struct Architecture {
  const char *name, *family;
  bool permuted = false;  // queries and keys are laid out for interleaved rotation
  bool gemma = false;     // norms hold 1 + w
  bool joined = false;    // the gate's and the upper projection are one matrix
  bool hybrid = false;    // some layers keep a state (lm/gguf_hybrid.hpp); their norms hold 1 + w but for the state's
};

constexpr std::array<Architecture, 11> kArchitectures{{{"llama", "llama", true},
                                                       {"qwen2", "qwen2"},
                                                       {"qwen3", "qwen3"},
                                                       {"gemma2", "gemma2", false, true},
                                                       {"gemma3", "gemma3_text", false, true},
                                                       {"smollm3", "smollm3", true},
                                                       {"olmo2", "olmo2"},
                                                       {"phi3", "phi3", false, false, true},
                                                       {"granite", "granite", true},
                                                       {"minicpm3", "minicpm3"},
                                                       {"qwen35", "qwen3_5_text", false, false, false, true}}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 21> kLayerNames{
    {{"attn_q", "self_attn.q_proj"},
     {"attn_qkv", "self_attn.qkv_proj"},
     {"attn_k", "self_attn.k_proj"},
     {"attn_v", "self_attn.v_proj"},
     {"attn_output", "self_attn.o_proj"},
     {"attn_q_a", "self_attn.q_a_proj"},
     {"attn_q_a_norm", "self_attn.q_a_layernorm"},
     {"attn_q_b", "self_attn.q_b_proj"},
     {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
     {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
     {"attn_kv_b", "self_attn.kv_b_proj"},
     {"attn_q_norm", "self_attn.q_norm"},
     {"attn_k_norm", "self_attn.k_norm"},
     {"ffn_gate", "mlp.gate_proj"},
     {"ffn_up", "mlp.up_proj"},
     {"ffn_down", "mlp.down_proj"},
     {"attn_norm", "input_layernorm"},
     {"ffn_norm", "post_attention_layernorm"},  // of Gemma it is another
     {"post_attention_norm", "post_attention_layernorm"},
     {"post_ffw_norm", "post_feedforward_layernorm"},
     {"attn_rot_embd", "self_attn.rotary_emb.inv_freq"}}};  // of old files; nobody reads it

constexpr std::array<std::string_view, 3> kInTheConfig{"rope_freqs.weight", "rope_factors_short.weight",
                                                       "rope_factors_long.weight"};
constexpr std::int64_t kMostListed = 4096;
constexpr const char* kLoadGguf = "load_gguf";

// A value of a config, and what it was made of.
constexpr std::array<std::pair<const char*, const char*>, 43> kKeys{
    {{"model_type", "general.architecture"},
     {"vocab_size", "vocab_size"},
     {"hidden_size", "embedding_length"},
     {"intermediate_size", "feed_forward_length"},
     {"num_hidden_layers", "block_count"},
     {"max_position_embeddings", "context_length"},
     {"num_attention_heads", "attention.head_count"},
     {"num_key_value_heads", "attention.head_count_kv"},
     {"head_dim", "attention.key_length"},
     {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
     {"layer_norm_eps", "attention.layer_norm_epsilon"},
     {"type_vocab_size", "tokenizer.ggml.token_type_count"},
     {"eos_token_id", "tokenizer.ggml.eos_token_id"},
     {"rope_theta", "rope.freq_base"},
     {"theta", "rope.freq_base"},
     {"rope_local_base_freq", "rope.freq_base_swa"},
     {"partial_rotary_factor", "rope.dimension_count"},
     {"rope_scaling", "rope.scaling"},
     {"rope_parameters", "rope.scaling"},
     {"rope_type", "rope.scaling.type"},
     {"factor", "rope.scaling.factor"},
     {"attention_factor", "rope.scaling.attn_factor"},
     {"original_max_position_embeddings", "rope.scaling.original_context_length"},
     {"sliding_window", "attention.sliding_window"},
     {"layer_types", "attention.sliding_window_pattern"},
     {"query_pre_attn_scalar", "attention.key_length"},
     {"attn_logit_softcapping", "attn_logit_softcapping"},
     {"final_logit_softcapping", "final_logit_softcapping"},
     {"embedding_multiplier", "embedding_scale"},
     {"residual_multiplier", "residual_scale"},
     {"attention_multiplier", "attention.scale"},
     {"logits_scaling", "logit_scale"},
     {"q_lora_rank", "attention.q_lora_rank"},
     {"kv_lora_rank", "attention.kv_lora_rank"},
     {"qk_rope_head_dim", "rope.dimension_count"},
     {"qk_nope_head_dim", "attention.key_length"},
     {"v_head_dim", "attention.value_length"},
     {"linear_num_key_heads", "ssm.group_count"},
     {"linear_num_value_heads", "ssm.time_step_rank"},
     {"linear_key_head_dim", "ssm.state_size"},
     {"linear_value_head_dim", "ssm.inner_size"},
     {"linear_conv_kernel_dim", "ssm.conv_kernel"},
     {"full_attention_interval", "full_attention_interval"}}};

const Architecture& architecture_of(const GgufMetadata& metadata) {
  const std::string name = metadata.text("general.architecture");
  const auto at = std::ranges::find_if(kArchitectures, [&](const Architecture& a) { return name == a.name; });
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
  const std::size_t dot = name.find('.', block.size());
  if (dot == std::string_view::npos) return {};
  const std::size_t last = name.rfind('.') > dot ? name.rfind('.') : name.size();  // ssm_a has no suffix
  const std::string_view layer = name.substr(block.size(), dot - block.size()),
                         part = name.substr(dot + 1, last - dot - 1);
  const std::string prefix = std::string("model.layers.").append(layer).append(".");
  if (const std::string_view own = renamed(part, kHybridNames); a.hybrid && !own.empty()) {
    const bool bare = own == "A_log" || own == "dt_bias";
    return std::string(prefix).append("linear_attn.").append(own).append(bare ? "" : name.substr(last));
  }
  std::string_view ours = renamed(part, kLayerNames);
  if (ours.empty() || last == name.size()) return {};
  if (part == "ffn_up" && a.joined) ours = "mlp.gate_up_proj";
  if (part == "ffn_norm" && a.gemma) ours = "pre_feedforward_layernorm";
  return std::string(prefix).append(ours).append(name.substr(last));
}

// Returns the file's names of each layer's tensors. One that a layer lacks is named as in another layer of the file, or
// as such files name it.
std::map<std::string, std::string, std::less<>> names_in_file(const Gguf& file, const Architecture& a,
                                                              std::size_t layers) {
  std::map<std::string, std::string, std::less<>> names;
  const auto add = [&](const std::string& name) { names.emplace(hugging_face_name(name, a), name); };
  std::vector<std::string> parts;
  for (const GgufTensor& tensor : file.tensors()) {
    add(tensor.name);
    constexpr std::string_view block = "blk.";
    const std::size_t dot = tensor.name.find('.', block.size());
    if (!tensor.name.starts_with(block) || dot == std::string::npos) continue;
    const std::string part = tensor.name.substr(dot);
    if (std::ranges::find(parts, part) == parts.end()) parts.push_back(part);
  }
  for (const auto& [part, ours] : kLayerNames)
    for (const char* const end : {".weight", ".bias"}) parts.push_back(std::string(".").append(part).append(end));
  for (const auto& [part, ours] : kHybridNames)
    for (const char* const end : {"", ".weight", ".bias"}) parts.push_back(std::string(".").append(part).append(end));
  for (std::size_t i = 0; i < layers; ++i)
    for (const std::string& part : parts) add("blk." + std::to_string(i) + part);
  for (const char* const name : {"token_embd.weight", "output_norm.weight", "output.weight"}) add(name);
  return names;
}

// The numbers of a tensor that has one for each pair that turns; none where it is not there.
Json factors(const char* name, const Json& config, const GgufMetadata& metadata, const Gguf& file) {
  Json list = Json::array();
  const GgufTensor* tensor = file.find(name);
  if (!tensor) return list;
  const std::int64_t most = config["head_dim"].get<std::int64_t>() / 2;
  const Shape& shape = tensor->shape;
  if (shape.size() != 1 || shape[0] < 1 || shape[0] > most) {
    metadata.origin().fail(std::string(name) + " of 1 to " + std::to_string(most) + " numbers", shape.str());
  }
  const Tensor values = file.load(*tensor);
  for (std::int64_t i = 0; i < values.numel(); ++i) list.push_back(values.data<float>()[i]);
  return list;
}

// As llama.cpp reads them: without a type a factor is linear, and 0 stands for 1.
Json rope_scaling(const Json& config, const GgufMetadata& metadata, const Gguf& file) {
  const std::string type = metadata.text("rope.scaling.type", "linear");
  const double older = metadata.number("rope.scale_linear", 0);
  const double factor = metadata.number("rope.scaling.factor", older);
  // MiniCPM3's files do not say it: it is their whole context.
  const bool minicpm = config["model_type"] == "minicpm3";
  const std::int64_t context = minicpm ? config["max_position_embeddings"].get<std::int64_t>() : 0;
  const std::int64_t original = metadata.whole("rope.scaling.original_context_length", context);
  const bool listed = file.find("rope_freqs.weight") || file.find("rope_factors_short.weight");
  if (listed && ((factor != 0 && factor != 1) || (type != "none" && type != "linear" && type != "longrope"))) {
    metadata.origin().fail("no other scaling beside a factor for each frequency",
                           "rope.scaling.type " + type + " and a factor of " + io::text_of(factor));
  }
  // Llama 3's scaling, as a factor for each frequency.
  if (const Json list = factors("rope_freqs.weight", config, metadata, file); !list.empty()) {
    return {{"rope_type", "longrope"}, {"short_factor", list},
            {"long_factor", list},     {"attention_factor", 1.0},
            {"factor", 1.0},           {"original_max_position_embeddings", config["max_position_embeddings"]}};
  }
  // Phi-3's, for short texts and for long ones.
  if (const Json list = factors("rope_factors_short.weight", config, metadata, file); !list.empty()) {
    if (original < 1) metadata.origin().fail("a value rope.scaling.original_context_length", "none");
    return {{"rope_type", "longrope"},
            {"short_factor", list},
            {"long_factor", factors("rope_factors_long.weight", config, metadata, file)},
            {"attention_factor", metadata.number("rope.scaling.attn_factor", 1)},
            {"original_max_position_embeddings", original}};
  }
  if (type == "none" || (type == "linear" && (factor == 0 || factor == 1))) return nullptr;
  if (type == "linear") return {{"rope_type", type}, {"factor", factor}};
  if (type != "yarn") metadata.origin().fail("rope.scaling.type none, linear or yarn", io::in_quotes(type));
  Json scaling{{"rope_type", type}, {"factor", factor == 0 ? 1 : factor}};
  if (original > 0) scaling["original_max_position_embeddings"] = original;
  return scaling;
}

void add_rope(Json& config, const GgufMetadata& metadata, const Gguf& file) {
  config["rope_theta"] = metadata.number("rope.freq_base", 10000);
  if (const Json scaling = rope_scaling(config, metadata, file); !scaling.is_null()) config["rope_scaling"] = scaling;
  const std::int64_t head_dim = config["head_dim"], turned = metadata.whole("rope.dimension_count", head_dim);
  if (turned != head_dim) {  // which Phi-3 alone has
    config["partial_rotary_factor"] = static_cast<double>(turned) / static_cast<double>(head_dim);
  }
}

void add_phi3(Json& config, const GgufMetadata& metadata) {
  const std::int64_t window = metadata.whole("attention.sliding_window", 0);
  config["sliding_window"] = window > 0 ? Json(window) : Json(nullptr);
  // This family has it beside the parameters, whose own does not count.
  if (config.contains("rope_scaling") && config["rope_scaling"].contains("original_max_position_embeddings")) {
    config["original_max_position_embeddings"] = config["rope_scaling"]["original_max_position_embeddings"];
  }
}

void add_granite(Json& config, const GgufMetadata& metadata) {
  const auto scale = [&](const char* key, double otherwise) {  // 0 stands for the default
    const double value = metadata.number(key, 0);
    return value == 0 ? otherwise : value;
  };
  config["embedding_multiplier"] = scale("embedding_scale", 1);
  config["residual_multiplier"] = scale("residual_scale", 1);
  config["attention_multiplier"] = scale("attention.scale", 1 / std::sqrt(config["head_dim"].get<double>()));
  config["logits_scaling"] = metadata.number("logit_scale");
  if (const auto* turns = metadata.find("rope.scaling.finetuned"); turns && *turns == io::GgufValue(false)) {
    metadata.origin().fail("positions, which rope.scaling.finetuned turns off in this family", "false");
  }
}

// llama.cpp's files of MiniCPM3 do not have its constants, which it takes to be those of the released model.
void add_minicpm3(Json& config, const GgufMetadata& metadata, std::int64_t key_length) {
  const std::int64_t rotary = metadata.whole("rope.dimension_count");
  if (rotary < 1 || rotary >= key_length) {
    metadata.origin().fail("a rope.dimension_count from 1 to attention.key_length - 1", std::to_string(rotary));
  }
  config["head_dim"] = config["qk_rope_head_dim"] = rotary;
  config["qk_nope_head_dim"] = key_length - rotary;
  const std::int64_t width = config["hidden_size"], heads = config["num_attention_heads"];
  config["v_head_dim"] = metadata.whole("attention.value_length", width / heads);
  config["kv_lora_rank"] = metadata.whole("attention.kv_lora_rank");
  config["q_lora_rank"] = metadata.whole("attention.q_lora_rank");
  config["scale_emb"] = 12, config["scale_depth"] = 1.4, config["dim_model_base"] = 256;
}

// The layers that have a window: by a list of flags, or all but every n-th.
Json layer_types(const Json& config, const GgufMetadata& metadata, std::int64_t full_every) {
  const auto layers = config["num_hidden_layers"].get<std::int64_t>();
  const char* const key = "attention.sliding_window_pattern";
  const io::GgufValue* pattern = metadata.find(key);
  const auto* flags = pattern ? std::get_if<std::vector<bool>>(pattern) : nullptr;
  if (flags && static_cast<std::int64_t>(flags->size()) != layers) {
    metadata.origin().fail(std::string(key) + " of " + std::to_string(layers), std::to_string(flags->size()));
  }
  const std::int64_t every = flags ? 0 : metadata.whole(key, full_every);
  Json types = Json::array();
  for (std::int64_t i = 0; i < std::min(layers, kMostListed); ++i) {
    const bool slides = flags ? (*flags)[static_cast<std::size_t>(i)] : every < 1 || (i + 1) % every != 0;
    types.push_back(slides ? "sliding_attention" : "full_attention");
  }
  return types;
}

// Adds what Gemma's files do not say: released sizes but the largest scale queries by their head's dimension.
void add_gemma(Json& config, const GgufMetadata& metadata, bool third) {
  const std::int64_t layers = config["num_hidden_layers"], width = config["hidden_size"];
  const bool largest = layers == (third ? 62 : 46);
  const std::int64_t heads = config["num_attention_heads"], head_dim = config["head_dim"];
  config["query_pre_attn_scalar"] = largest ? width / heads : head_dim;
  config["hidden_activation"] = "gelu_pytorch_tanh";
  const std::int64_t window = metadata.whole("attention.sliding_window", third ? 0 : 4096);
  config["sliding_window"] = window > 0 ? Json(window) : Json(nullptr);
  config["layer_types"] = layer_types(config, metadata, window > 0 ? (third ? 6 : 2) : 1);
  const auto cap = [&](const char* key, double otherwise) {
    const double value = metadata.number(key, otherwise);
    config[key] = value > 0 ? Json(value) : Json(nullptr);
  };
  if (!third) cap("attn_logit_softcapping", 50);
  cap("final_logit_softcapping", third ? 0 : 30);
  if (third) config["rope_local_base_freq"] = metadata.number("rope.freq_base_swa", 10000);
}

// OLMo 3 calls itself olmo2. Its layers with a window have the base alone, and no scaling.
void add_olmo(Json& config, const GgufMetadata& metadata) {
  const std::int64_t window = metadata.whole("attention.sliding_window", 0);
  if (window < 1) return;
  config["model_type"] = "olmo3";
  config["sliding_window"] = window;
  config["layer_types"] = layer_types(config, metadata, 4);
  const double theta = config["rope_theta"];
  Json full = config.contains("rope_scaling") ? config["rope_scaling"] : Json{{"rope_type", "default"}};
  full["rope_theta"] = theta;
  const Json sliding{{"rope_type", "default"}, {"rope_theta", metadata.number("rope.freq_base_swa", theta)}};
  config["rope_parameters"] = {{"full_attention", full}, {"sliding_attention", sliding}};
  config.erase("rope_theta"), config.erase("rope_scaling");
}

Json config_of(const Gguf& file, const GgufMetadata& metadata, const Architecture& a) {
  const GgufTensor* embedding = file.find("token_embd.weight");
  if (!embedding || embedding->shape.size() != 2) metadata.origin().fail("a matrix token_embd.weight", "none");
  Json config{{"model_type", a.family}};
  config["vocab_size"] = embedding->shape[0];
  metadata.require("vocab_size", embedding->shape[0]);
  const std::int64_t heads = metadata.of_all_layers("attention.head_count"), width = metadata.whole("embedding_length");
  config["hidden_size"] = width;
  config["intermediate_size"] = metadata.of_all_layers("feed_forward_length");
  config["num_hidden_layers"] = metadata.whole("block_count") - (a.hybrid ? layers_ahead(metadata) : 0);
  config["max_position_embeddings"] = metadata.whole("context_length");
  if (heads < 1) metadata.origin().fail("attention.head_count of 1 or more", std::to_string(heads));
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = metadata.of_all_layers("attention.head_count_kv", heads);
  const std::int64_t head_dim = metadata.whole("attention.key_length", width / heads);
  if (head_dim < 1) metadata.origin().fail("attention.key_length of 1 or more", std::to_string(head_dim));
  config["head_dim"] = head_dim;
  const std::string_view name = a.name;
  if (name == "minicpm3") {
    add_minicpm3(config, metadata, head_dim);
  } else {
    metadata.require("attention.value_length", head_dim);
  }
  config["rms_norm_eps"] = metadata.number("attention.layer_norm_rms_epsilon");
  config["tie_word_embeddings"] = file.find("output.weight") == nullptr;
  if (file.find("blk.0.attn_q.bias") && name != "qwen2") config["attention_bias"] = true;
  for (const auto& [ours, theirs] : {std::pair{"bos", "bos"}, {"eos", "eos"}, {"pad", "padding"}}) {
    const std::int64_t id = metadata.whole(std::string("tokenizer.ggml.") + theirs + "_token_id", -1);
    config[std::string(ours) + "_token_id"] = id < 0 ? Json(nullptr) : Json(id);
  }
  add_rope(config, metadata, file);
  if (a.gemma) add_gemma(config, metadata, name == "gemma3");
  if (name == "smollm3") config["no_rope_layer_interval"] = 4;  // of all released ones; files do not say it
  if (name == "olmo2") add_olmo(config, metadata);
  if (name == "phi3") add_phi3(config, metadata);
  if (name == "granite") add_granite(config, metadata);
  if (a.hybrid) add_qwen35(config, metadata);
  metadata.finish(metadata.prefix(), kGgufPassedOver);
  metadata.finish("general.", kGgufGeneralPassedOver);
  return config;
}

// Rows (heads · d, …) of interleaved pairs, in halves.
Tensor in_halves(const Tensor& rows, std::int64_t heads) {
  const std::int64_t half = rows.size(0) / heads / 2, columns = rows.numel() / rows.size(0);
  return rows.view({heads, half, 2, columns}).transpose(1, 2).contiguous().view(rows.shape());
}

StoredTensor stored(const std::shared_ptr<const Gguf>& file, const GgufTensor& tensor, const Architecture& a,
                    const LanguageModelConfig& config, const std::string& source) {
  const std::string name = hugging_face_name(tensor.name, a);
  const bool queries = name.find("self_attn.q_proj") != std::string::npos;
  const bool turned = a.permuted && (queries || name.find("self_attn.k_proj") != std::string::npos);
  if (name.find(".linear_attn.") != std::string::npos)
    return stored_recurrent(file, tensor, name, *config.gated_delta, source);
  const bool less_one = (a.gemma || a.hybrid) && name.ends_with("norm.weight");
  const std::int64_t heads = queries ? config.heads : config.kv_heads;
  const auto load = [file, tensor, turned, less_one, heads](DType dtype) {
    Tensor values = file->load(tensor, less_one ? DType::f32 : dtype);
    for (std::int64_t i = 0; less_one && i < values.numel(); ++i) values.data<float>()[i] -= 1;
    const bool divisible = values.rank() > 0 && values.size(0) % (2 * heads) == 0;  // else the shape is refused
    return turned && divisible ? in_halves(values, heads) : values.to(dtype);
  };
  const auto load_blocks = [file, tensor, turned, heads](std::int64_t first, std::int64_t last) {
    if (!turned) return file->load_blocks(tensor, first, last);
    const std::int64_t width = tensor.shape[0] / heads, half = width / 2;
    return file->load_blocks(tensor, first, last, [=](std::int64_t row) {  // as in_halves() does
      return row / width * width + row % half * 2 + row % width / half;
    });
  };
  StoredTensor all{name, std::string(io::name(tensor.type)), tensor.shape, tensor.bytes, load};
  const bool divisible = !turned || tensor.shape[0] % (2 * heads) == 0;
  if (io::is_quantized(tensor.type) && tensor.shape.size() == 2 && divisible && !less_one)
    all.load_blocks = load_blocks;
  return all;
}

// Says whether a tensor is of a layer behind the last, which guesses tokens ahead.
bool is_ahead(std::string_view name, const Architecture& a, const LanguageModelConfig& config) {
  constexpr std::string_view block = "blk.";
  if (!a.hybrid || !name.starts_with(block)) return false;
  std::size_t layer = 0;
  const std::string_view digits = name.substr(block.size());
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
  return error == std::errc() && end != digits.data() + digits.size() && *end == '.' && layer >= config.layers.size();
}

}  // namespace

io::KeyNames gguf_names(const GgufMetadata& metadata) {
  io::KeyNames names;
  for (const auto& [ours, theirs] : kKeys) names.emplace(ours, metadata.named(theirs));
  return names;
}

PretrainedFiles open_gguf_model(const std::shared_ptr<const Gguf>& file, const std::string& source) {
  GgufMetadata metadata(*file, {kLoadGguf, source});
  const Architecture& a = architecture_of(metadata);
  metadata.set_prefix(std::string(a.name) + ".");
  PretrainedFiles files;
  files.format = "gguf";
  const io::KeyNames names = gguf_names(metadata);
  files.config = language_model_config_of(config_of(*file, metadata, a).dump(2) + "\n", {kLoadGguf, source, &names});
  for (const GgufTensor& tensor : file->tensors()) {
    if (std::ranges::find(kInTheConfig, tensor.name) != kInTheConfig.end()) continue;
    if (is_ahead(tensor.name, a, files.config)) continue;
    if (hugging_face_name(tensor.name, a).empty()) {
      metadata.origin().fail(std::string("only tensors of architecture ") + a.name, io::in_quotes(tensor.name));
    }
    files.tensors.push_back(stored(file, tensor, a, files.config, source));
  }
  files.names = names_in_file(*file, a, files.config.layers.size());
  return files;
}

}  // namespace attn
