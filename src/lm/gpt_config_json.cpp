// GPTConfig as Hugging Face's GPT2Config writes it.
#include "lm/gpt_config_json.hpp"

#include "attn/pretrained.hpp"
#include "io/passed_over.hpp"

namespace attn {
namespace {

std::vector<Mixer> mixers_of(const io::JsonObject& json, std::int64_t layers) {
  const auto* types = json.find("layer_types");
  if (!types || !types->is_array() || std::ssize(*types) != layers)
    json.wrong("layer_types", "a list of " + std::to_string(layers), types ? *types : io::JsonObject::Json());
  std::vector<Mixer> mixers;
  for (const auto& type : *types) {
    if (type != "full_attention" && type != "gated_delta_net")
      json.wrong("layer_types", "full_attention and gated_delta_net alone", type);
    mixers.push_back(type == "full_attention" ? Mixer::softmax : Mixer::gated_delta);
  }
  return mixers;
}

Activation gelu_named(const io::JsonObject& json) {
  const std::string name = json.text("activation_function", "gelu_new");
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  json.wrong("activation_function", "gelu_new, gelu_pytorch_tanh or gelu", name);
}

}  // namespace

std::string gpt_config_json(const GPTConfig& config) {
  nlohmann::ordered_json json{{"architectures", {"GPT2LMHeadModel"}},
                              {"model_type", "gpt2"},
                              {"vocab_size", config.vocab_size},
                              {"n_positions", config.context_length},
                              {"n_embd", config.width},
                              {"n_layer", config.layers},
                              {"n_head", config.heads},
                              {"activation_function", config.gelu == Activation::gelu_tanh ? "gelu_new" : "gelu"},
                              {"layer_norm_epsilon", config.epsilon},
                              {"embd_pdrop", config.dropout},
                              {"attn_pdrop", config.dropout},
                              {"resid_pdrop", config.dropout},
                              {"tie_word_embeddings", config.tied},
                              {"bos_token_id", nullptr},
                              {"eos_token_id", nullptr}};
  if (!config.mixers.empty()) {  // a type of its own, which transformers does not take for its GPT-2
    json["architectures"] = {"AttnGPTForCausalLM"}, json["model_type"] = kHybrid;
    for (std::int64_t i = 0; i < config.layers; ++i) {
      const Mixer mixer = config.mixers[static_cast<std::size_t>(i) % config.mixers.size()];
      json["layer_types"].push_back(mixer == Mixer::softmax ? "full_attention" : "gated_delta_net");
    }
  }
  return json.dump(2) + "\n";
}

GPTConfig gpt_config_of(const io::JsonObject& json) {
  const bool hybrid = json.text("model_type", "gpt2") == kHybrid;
  if (!hybrid) json.require("model_type", "gpt2");
  GPTConfig config;
  config.vocab_size = json.size("vocab_size", 50257);
  config.context_length = json.size("n_positions", 1024);
  config.width = json.size("n_embd", 768);
  config.layers = json.size("n_layer", 12);
  config.heads = json.size("n_head", 12);
  config.gelu = gelu_named(json);
  config.epsilon = json.number("layer_norm_epsilon", 1e-5, 1e-300, 1);
  config.dropout = json.number("resid_pdrop", 0.1, 0, 1);
  for (const char* const key : {"embd_pdrop", "attn_pdrop"}) {
    if (json.number(key, 0.1, 0, 1) != config.dropout)
      json.wrong(key, "the same as resid_pdrop", json.number(key, 0.1, 0, 1));
  }
  config.tied = json.flag("tie_word_embeddings", true);
  if (hybrid) config.mixers = mixers_of(json, config.layers);
  json.require("n_ctx", config.context_length);  // an older name, which stands beside n_positions
  json.require("n_inner", 4 * config.width);
  json.require("scale_attn_weights", true);
  json.require("scale_attn_by_inverse_layer_idx", false);
  json.finish({kGptPassedOver, kConfigPassedOver, kMoreConfigPassedOver});
  if (config.width % config.heads != 0) json.wrong("n_embd", "a multiple of n_head", config.width);
  return config;
}

GPTConfig parse_gpt_config(std::string_view text, std::string_view source) {
  const io::Origin origin{"load_gpt", source};
  const io::JsonObject json(text, origin);
  json.pass_over({"eos_token_id"});  // which the tokenizer's files say, too
  return gpt_config_of(json);
}

}  // namespace attn
