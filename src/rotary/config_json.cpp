// Rope parameters as Hugging Face's config.json writes them, in both of its forms.
#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "attn/rotary.hpp"
#include "io/json_object.hpp"

namespace attn {
namespace {

using io::JsonObject;
using Json = JsonObject::Json;

constexpr double kMost = std::numeric_limits<double>::max();

constexpr std::array<std::pair<std::string_view, RopeType>, 6> kTypes{{{"default", RopeType::standard},
                                                                       {"linear", RopeType::linear},
                                                                       {"dynamic", RopeType::dynamic},
                                                                       {"yarn", RopeType::yarn},
                                                                       {"llama3", RopeType::llama3},
                                                                       {"longrope", RopeType::longrope}}};

RopeType type_of(const JsonObject& parameters) {
  const char* const key = parameters.find("rope_type") ? "rope_type" : "type";  // the older name
  const std::string text = parameters.text(key, "default");
  const auto* at = std::ranges::find(kTypes, text, &decltype(kTypes)::value_type::first);
  if (at == kTypes.end()) parameters.wrong(key, "default, linear, dynamic, yarn, llama3 or longrope", text);
  return at->second;
}

std::optional<double> optional_number(const JsonObject& json, const char* key) {
  if (!json.find(key)) return std::nullopt;
  return json.number(key, 0, 0, kMost);
}

std::vector<double> numbers(const JsonObject& json, const char* key) {
  std::vector<double> result;
  const Json* list = json.find(key);
  if (!list) return result;
  const bool fits = list->is_array() && std::ranges::all_of(*list, [](const Json& x) { return x.is_number(); });
  if (!fits) json.wrong(key, "a list of numbers", *list);
  for (const Json& x : *list) result.push_back(x.get<double>());
  return result;
}

// What holds for the layers asked for: `all`, or what lies in it under their type.
struct Parameters {
  Json own, all;
  bool nested = false;
};

Parameters parameters_of(const JsonObject& config, std::string_view layer_type) {
  const Json* scaling = config.find("rope_scaling");
  if (scaling && scaling->empty()) scaling = nullptr;
  const char* const key = scaling ? "rope_scaling" : "rope_parameters";
  const Json* found = config.find(key);
  if (!found) return {Json::object(), Json::object()};
  if (!found->is_object()) config.wrong(key, "an object", *found);
  const bool nested = std::ranges::any_of(*found, [](const Json& value) { return value.is_object(); });
  if (!nested) return {*found, *found};
  std::string names;
  for (const auto& [name, value] : found->items()) {
    if (name == layer_type && value.is_object()) return {value, *found, true};
    if (value.is_object()) names.append(names.empty() ? "" : ", ").append(name);
  }
  config.wrong(key, "read for a layer type among: " + names, std::string(layer_type));
}

std::int64_t head_dim_of(const JsonObject& config) {
  const std::int64_t width = config.size("hidden_size", 0), heads = config.size("num_attention_heads", 0);
  const std::int64_t dim = config.size("head_dim", heads == 0 ? 0 : width / heads);
  if (dim == 0) config.wrong("head_dim", "there, or hidden_size and num_attention_heads", nullptr);
  return dim;
}

}  // namespace

RopeConfig parse_rope_config(std::string_view json, std::string_view layer_type, double default_theta,
                             std::string_view source) {
  const io::Origin origin{"parse_rope_config", source};
  const JsonObject config(json, origin);
  RopeConfig result;
  result.head_dim = head_dim_of(config);
  if (layer_type == "sliding_attention" && config.find("rope_local_base_freq") && !config.find("rope_parameters")) {
    result.theta = config.number("rope_local_base_freq", 0, 0, kMost);  // Gemma 3 before it had rope_parameters
    return result;
  }
  const auto [own, all, nested] = parameters_of(config, layer_type);
  const JsonObject p(own, origin);
  result.type = type_of(p);
  result.theta = p.number("rope_theta", config.number("rope_theta", default_theta, 0, kMost), 0, kMost);
  result.partial_rotary_factor =
      p.number("partial_rotary_factor", config.number("partial_rotary_factor", 1, 0, 1), 0, 1);
  result.max_position_embeddings = config.size("max_position_embeddings", 0);
  // Phi-3 has it beside the parameters, which then counts.
  const std::int64_t within = p.size("original_max_position_embeddings", result.max_position_embeddings);
  result.original_max_position_embeddings = nested ? within : config.size("original_max_position_embeddings", within);
  result.factor = optional_number(p, "factor");
  result.attention_factor = optional_number(p, "attention_factor");
  const auto or_default = [&p](const char* key, double otherwise) {  // 0 stands for the default there
    const double value = p.number(key, otherwise, 0, kMost);
    return value == 0 ? otherwise : value;
  };
  result.beta_fast = or_default("beta_fast", result.beta_fast);
  result.beta_slow = or_default("beta_slow", result.beta_slow);
  result.mscale = p.number("mscale", 0, 0, kMost);
  result.mscale_all_dim = p.number("mscale_all_dim", 0, 0, kMost);
  result.truncate = JsonObject(all, origin).flag("truncate", true);  // transformers does not look for it by layer type
  result.low_freq_factor = p.number("low_freq_factor", result.low_freq_factor, 0, kMost);
  result.high_freq_factor = p.number("high_freq_factor", result.high_freq_factor, 0, kMost);
  result.short_factor = numbers(p, "short_factor");
  result.long_factor = numbers(p, "long_factor");
  return result;
}

}  // namespace attn
