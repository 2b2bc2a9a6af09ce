// GPTConfig as Hugging Face's GPT2Config writes it.
#include <nlohmann/json.hpp>

#include "attn/checkpoint.hpp"
#include "io/bytes.hpp"

namespace attn {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kLargest = std::int64_t{1} << 31;  // of a size: products of two stay far from 2^63

class Reader {
 public:
  Reader(std::string_view json, const io::Origin& origin) : origin_(origin) {
    try {
      json_ = Json::parse(json);
    } catch (const Json::exception&) {
      origin.fail("JSON", io::in_quotes(json.substr(0, 60)));
    }
    if (!json_.is_object()) origin.fail("an object", json_.type_name());
  }

  std::int64_t size(const char* key, std::int64_t otherwise) const {
    const Json* value = find(key);
    if (!value) return otherwise;
    const bool fits = value->is_number_unsigned() && value->get<std::uint64_t>() <= std::uint64_t{kLargest};
    if (!fits || value->get<std::int64_t>() < 1) wrong(key, "an integer from 1 to 2^31", *value);
    return value->get<std::int64_t>();
  }

  double number(const char* key, double otherwise, double low, double high) const {
    const Json* value = find(key);
    if (!value) return otherwise;
    const double x = value->is_number() ? value->get<double>() : -1;
    if (!(x >= low && x <= high)) wrong(key, "a number in its range", *value);
    return x;
  }

  bool flag(const char* key, bool otherwise) const {
    const Json* value = find(key);
    if (value && !value->is_boolean()) wrong(key, "true or false", *value);
    return value ? value->get<bool>() : otherwise;
  }

  std::string text(const char* key, const char* otherwise) const {
    const Json* value = find(key);
    if (value && !value->is_string()) wrong(key, "a string", *value);
    return value ? value->get<std::string>() : otherwise;
  }

  // A key that may only have the value which this GPT has.
  void require(const char* key, const Json& only) const {
    const Json* value = find(key);
    if (value && *value != only) wrong(key, only.dump(), *value);
  }

  [[noreturn]] void wrong(const char* key, const std::string& expected, const Json& found) const {
    const std::string text = found.dump(-1, ' ', true, Json::error_handler_t::replace);
    origin_.fail(std::string(key) + " to be " + expected, io::in_quotes(text));
  }

 private:
  const Json* find(const char* key) const {  // null stands for a missing key
    const auto at = json_.find(key);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }

  const io::Origin& origin_;
  Json json_;
};

Gelu gelu_named(const Reader& json) {
  const std::string name = json.text("activation_function", "gelu_new");
  if (name == "gelu") return Gelu::exact;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Gelu::tanh;
  json.wrong("activation_function", "gelu_new, gelu_pytorch_tanh or gelu", name);
}

}  // namespace

std::string gpt_config_json(const GPTConfig& config) {
  const Json json{{"architectures", {"GPT2LMHeadModel"}},
                  {"model_type", "gpt2"},
                  {"vocab_size", config.vocab_size},
                  {"n_positions", config.context_length},
                  {"n_embd", config.width},
                  {"n_layer", config.layers},
                  {"n_head", config.heads},
                  {"activation_function", config.gelu == Gelu::tanh ? "gelu_new" : "gelu"},
                  {"layer_norm_epsilon", config.epsilon},
                  {"embd_pdrop", config.dropout},
                  {"attn_pdrop", config.dropout},
                  {"resid_pdrop", config.dropout},
                  {"tie_word_embeddings", config.tied},
                  {"bos_token_id", nullptr},
                  {"eos_token_id", nullptr}};
  return json.dump(2) + "\n";
}

GPTConfig parse_gpt_config(std::string_view text, std::string_view source) {
  const io::Origin origin{"load_gpt", source};
  const Reader json(text, origin);
  json.require("model_type", "gpt2");
  GPTConfig config;
  config.vocab_size = json.size("vocab_size", 50257);
  config.context_length = json.size("n_positions", 1024);
  config.width = json.size("n_embd", 768);
  config.layers = json.size("n_layer", 12);
  config.heads = json.size("n_head", 12);
  config.gelu = gelu_named(json);
  config.epsilon = json.number("layer_norm_epsilon", 1e-5, 1e-300, 1);
  config.dropout = json.number("resid_pdrop", 0.1, 0, 1);
  config.tied = json.flag("tie_word_embeddings", true);
  json.require("n_inner", 4 * config.width);
  json.require("scale_attn_weights", true);
  json.require("scale_attn_by_inverse_layer_idx", false);
  json.require("add_cross_attention", false);
  if (config.width % config.heads != 0) json.wrong("n_embd", "a multiple of n_head", config.width);
  return config;
}

}  // namespace attn
