// Rope parameters as Hugging Face's config.json writes them, in both of its forms.
#include "rotary/config_json.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

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

constexpr std::array<io::PassedOver, 2> kPassedOver{
    {{"original_max_position_embeddings", "", "how the model was trained, where its rope_type does not use it"},
     {"type", "", "the older name of rope_type, which counts where both are there"}}};

// A Family is what a config.json says of itself that changes how it is read. The others are read as Llama's.
struct Family {
  bool phi3 = false;                   // has longrope under older names
  bool qwen3_5 = false;                // turns a quarter of a head, and has sections for pictures
  bool gemma3 = false, olmo3 = false;  // have parameters of their own for layers with a window

  explicit Family(const JsonObject& config) {
    const std::string name = config.text("model_type", "");
    phi3 = name == "phi3", olmo3 = name == "olmo3", qwen3_5 = name == "qwen3_5_text";
    gemma3 = name == "gemma3_text" || (name.empty() && config.find("rope_local_base_freq"));
  }
  bool by_layer() const { return gemma3 || olmo3; }
};

RopeType type_of(const JsonObject& parameters, const Family& family) {
  const bool older = !parameters.find("rope_type");
  const char* const key = older ? "type" : "rope_type";
  std::string text = parameters.text(key, "default");
  if (family.olmo3 && older && text != "default") parameters.wrong(key, "rope_type, which alone OLMo 3 reads", text);
  if (family.phi3 && (text == "su" || text == "yarn")) text = "longrope";
  const auto at = std::ranges::find(kTypes, text, &decltype(kTypes)::value_type::first);
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

// Parameters hold for the layers asked for: `all`, or what lies in it under their type.
struct Parameters {
  Json own = Json::object(), all = Json::object();
  bool nested = false;
};

Parameters nested_parameters(const JsonObject& config, const char* key, const Json& all, std::string_view layer_type,
                             const Family& family) {
  std::string names;
  Parameters found{Json::object(), all, true};
  bool there = family.by_layer();  // which has defaults for either type
  for (const auto& [name, value] : all.items()) {
    if (value.is_object() && name == layer_type) found.own = value, there = true;
    if (value.is_object()) names.append(names.empty() ? "" : ", ").append(name);
    if (!value.is_object() && !value.is_null() && name != "truncate") {
      io::require_passed_over(name, value, {}, config.origin());
    }
  }
  if (!there) config.wrong(key, "read for a layer type among: " + names, std::string(layer_type));
  return found;
}

Parameters parameters_of(const JsonObject& config, std::string_view layer_type, const Family& family) {
  const Json* scaling = config.find("rope_scaling");
  if (scaling && scaling->empty()) scaling = nullptr;
  const char* const key = scaling ? "rope_scaling" : "rope_parameters";
  const Json* found = config.find(key);
  if (!found) return {};
  if (!found->is_object()) config.wrong(key, "an object", *found);
  const bool nested = std::ranges::any_of(*found, [](const Json& value) { return value.is_object(); });
  if (nested && scaling && family.by_layer()) {  // transformers takes these objects for keys of no meaning
    config.wrong(key, "without layer types, which this family reads in rope_parameters alone", *found);
  }
  if (nested) return nested_parameters(config, key, *found, layer_type, family);
  if (family.by_layer() && !scaling && !found->empty()) {
    config.wrong(key, "nested by full_attention and sliding_attention, as this family reads it", *found);
  }
  if (family.by_layer() && layer_type == "sliding_attention") return {};  // the older form scales the others alone
  return {*found, *found};
}

std::int64_t head_dim_of(const JsonObject& config) {
  const std::int64_t width = config.size("hidden_size", 0), heads = config.size("num_attention_heads", 0);
  const std::int64_t dim = config.size("head_dim", heads == 0 ? 0 : width / heads);
  if (dim == 0) config.wrong("head_dim", "there, or hidden_size and num_attention_heads", nullptr);
  return dim;
}

// Outside the parameters. transformers gives OLMo 3's layers with a window the family's base, whatever rope_theta is.
double theta_of(const JsonObject& config, std::string_view layer_type, const Family& family, double otherwise) {
  if (layer_type != "sliding_attention" || !family.by_layer()) return config.number("rope_theta", otherwise, 0, kMost);
  return family.gemma3 ? config.number("rope_local_base_freq", otherwise, 0, kMost) : otherwise;
}

void read_yarn(RopeConfig& result, const JsonObject& p, const Json& all) {
  const auto or_default = [&p](const char* key, double otherwise) {  // 0 stands for the default there
    const double value = p.number(key, otherwise, 0, kMost);
    return value == 0 ? otherwise : value;
  };
  result.beta_fast = or_default("beta_fast", result.beta_fast);
  result.beta_slow = or_default("beta_slow", result.beta_slow);
  result.mscale = p.number("mscale", 0, 0, kMost);
  result.mscale_all_dim = p.number("mscale_all_dim", 0, 0, kMost);
  p.pass_over({"truncate"});
  result.truncate = JsonObject(all, p.origin()).flag("truncate", true);  // transformers looks for it here alone
}

// How many pairs turn by time, height and width: a text's tokens have the same position in all three.
void pass_sections(const JsonObject& p) {
  p.pass_over({"mrope_interleaved"});
  if (!p.has("mrope_section")) return;
  if (!p.find("mrope_section") || numbers(p, "mrope_section").size() != 3)
    p.wrong("mrope_section", "a list of three numbers", p.find("mrope_section") ? *p.find("mrope_section") : Json());
}

// transformers refuses parameters that lack a number of their type, though null may stand for YaRN's factor.
void require_numbers(const JsonObject& p, RopeType type) {
  if (type == RopeType::yarn && !p.has("factor")) p.wrong("factor", "there, for the type yarn", nullptr);
  for (const char* const key : {"low_freq_factor", "high_freq_factor"})
    if (type == RopeType::llama3 && !p.find(key)) p.wrong(key, "there, for the type llama3", nullptr);
}

// The numbers of each type, and no others.
void read_numbers(RopeConfig& result, const JsonObject& p, const Json& all) {
  const RopeType type = result.type;
  require_numbers(p, type);
  if (type != RopeType::standard) result.factor = optional_number(p, "factor");
  if (type == RopeType::yarn || type == RopeType::longrope) {
    result.attention_factor = optional_number(p, "attention_factor");
  }
  if (type == RopeType::yarn) read_yarn(result, p, all);
  if (type == RopeType::llama3) {
    result.low_freq_factor = p.number("low_freq_factor", result.low_freq_factor, 0, kMost);
    result.high_freq_factor = p.number("high_freq_factor", result.high_freq_factor, 0, kMost);
  }
  if (type == RopeType::longrope) {
    result.short_factor = numbers(p, "short_factor");
    result.long_factor = numbers(p, "long_factor");
  }
}

}  // namespace

RopeConfig rope_config_of(const JsonObject& config, std::string_view layer_type, double default_theta) {
  const Family family(config);
  RopeConfig result;
  result.head_dim = head_dim_of(config);
  const auto [own, all, nested] = parameters_of(config, layer_type, family);
  const JsonObject p(own, config.origin());
  result.type = type_of(p, family);
  result.theta = p.number("rope_theta", theta_of(config, layer_type, family, default_theta), 0, kMost);
  result.partial_rotary_factor =
      p.number("partial_rotary_factor", config.number("partial_rotary_factor", family.qwen3_5 ? 0.25 : 1, 0, 1), 0, 1);
  result.max_position_embeddings = config.size("max_position_embeddings", 0);
  // Phi-3 has it beside the parameters, which then counts, and so does the family's default.
  constexpr std::int64_t of_phi3 = 4096;
  const std::int64_t within = p.size("original_max_position_embeddings", result.max_position_embeddings);
  result.original_max_position_embeddings =
      nested ? within : config.size("original_max_position_embeddings", family.phi3 ? of_phi3 : within);
  read_numbers(result, p, all);
  if (family.qwen3_5) pass_sections(p);
  p.finish({kPassedOver});
  return result;
}

RopeConfig parse_rope_config(std::string_view json, std::string_view layer_type, double default_theta,
                             std::string_view source) {
  const io::Origin origin{"parse_rope_config", source};
  return rope_config_of(JsonObject(json, origin), layer_type, default_theta);
}

}  // namespace attn
