// Families whose layers are gated delta rules and softmax attention, by transformers' names of the sizes.
#include "lm/hybrid_family.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "lm/names.hpp"
#include "rotary/config_json.hpp"

namespace attn {
namespace {

using io::JsonObject;
using Json = JsonObject::Json;

constexpr const char* kConv1d = "_conv1d.weight";
constexpr std::string_view kParts = "qkv";
constexpr const char *kLinear = "linear_attention", *kFull = "full_attention";

// By layer_types, or else by `is_full`.
template <class F>
void set_mixers(const JsonObject& json, LanguageModelConfig& c, const F& is_full) {
  const Json* types = json.find("layer_types");
  if (types && (!types->is_array() || types->size() != c.layers.size())) {
    json.wrong("layer_types", "a list of " + std::to_string(c.layers.size()), *types);
  }
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    const Json type = types ? (*types)[i] : Json(is_full(i) ? kFull : kLinear);
    if (type != kLinear && type != kFull) json.wrong("layer_types", "linear_attention and full_attention alone", type);
    c.layers[i].mixer = type == kFull ? Mixer::softmax : Mixer::gated_delta;
  }
  if (std::ranges::find(c.layers, Mixer::gated_delta, &LayerConfig::mixer) == c.layers.end()) {
    json.wrong("layer_types", "linear_attention in one layer at least", types ? *types : Json());
  }
}

// The convolution's activation is hidden_act, too.
void check(const JsonObject& json, const LanguageModelConfig& c, const GatedDeltaConfig& s) {
  if (c.activation != Activation::silu) {
    json.wrong("hidden_act", "silu, which is the convolution's, too", json.text("hidden_act", ""));
  }
  if (s.value_heads % s.key_heads != 0) {
    json.wrong("linear_num_value_heads", "a multiple of linear_num_key_heads = " + std::to_string(s.key_heads),
               s.value_heads);
  }
  if (s.convolution < 2 || s.convolution > 8) json.wrong("linear_conv_kernel_dim", "2 to 8 tokens", s.convolution);
  constexpr std::int64_t most = std::int64_t{1} << 31;
  for (const auto& [key, heads, dim] : {std::tuple{"linear_key_head_dim", s.key_heads, s.key_dim},
                                        {"linear_value_head_dim", s.value_heads, s.value_dim}})
    if (dim > most / heads) json.wrong(key, "heads of at most 2^31 numbers together", dim);
}

void add_rope(const JsonObject& json, LanguageModelConfig& c) {
  RopeConfig rope = rope_config_of(json, {}, 10000);
  rope.head_dim = c.head_dim;
  c.ropes = {rope};
}

// A base of null: nothing turns.
bool has_no_base(const JsonObject& json) {
  const Json* parameters = json.find("rope_parameters");
  if (!parameters || !parameters->is_object() || !parameters->contains("rope_theta")) {
    return json.has("rope_theta") && !json.find("rope_theta");
  }
  return (*parameters)["rope_theta"].is_null();
}

}  // namespace

void join_convolutions(std::vector<StoredTensor>& tensors) {
  std::map<std::string, std::array<const StoredTensor*, 3>> parts;
  for (const StoredTensor& tensor : tensors) {
    const std::size_t at = tensor.name.find(kConv1d);
    const std::size_t part = at == std::string::npos || at == 0 ? 3 : kParts.find(tensor.name[at - 1]);
    if (part >= 3 || tensor.shape.size() != 3) continue;
    parts[tensor.name.substr(0, at - 1) + (kConv1d + 1)].at(part) = &tensor;
  }
  std::vector<StoredTensor> joined;
  std::set<std::string> gone;
  for (const auto& [name, found] : parts) {
    const auto& three = found;
    const auto fits = [&](const StoredTensor* t) { return t && t->shape[1] == 1 && t->shape[2] == three[0]->shape[2]; };
    if (!three[0] || !std::ranges::all_of(three, fits)) continue;
    StoredTensor one = *three[0];
    one.name = name, one.load_blocks = nullptr;
    const std::vector<StoredTensor> all{*three[0], *three[1], *three[2]};
    for (const StoredTensor& t : all) gone.insert(t.name);
    one.shape[0] += all[1].shape[0] + all[2].shape[0], one.bytes += all[1].bytes + all[2].bytes;
    one.load = [all](DType dtype) {
      std::vector<Tensor> columns;
      for (const StoredTensor& t : all) columns.push_back(t.load(dtype).view({t.shape[0], t.shape[2]}).transpose(0, 1));
      return concat_last(columns).transpose(0, 1).contiguous().view({-1, 1, all[0].shape[2]});
    };
    joined.push_back(std::move(one));
  }
  // One of each name: another one is left to be refused.
  std::erase_if(tensors, [&](const StoredTensor& t) { return gone.erase(t.name) > 0; });
  std::ranges::move(joined, std::back_inserter(tensors));
}

std::vector<std::pair<std::string, Tensor>> split_convolution(const std::string& name, const Tensor& all,
                                                              const GatedDeltaConfig& sizes) {
  const std::size_t at = name.find(kConv1d + 1);
  std::vector<std::pair<std::string, Tensor>> parts;
  std::int64_t row = 0;
  for (const auto& [letter, rows] :
       {std::pair{kParts[0], sizes.keys()}, {kParts[1], sizes.keys()}, {kParts[2], sizes.values()}}) {
    std::string part = name;
    part.insert(at, {letter, '_'});
    parts.emplace_back(part, all.slice(0, row, row + rows));
    row += rows;
  }
  return parts;
}

void read_olmo_hybrid(const JsonObject& json, LanguageModelConfig& c) {
  c.tied = json.flag("tie_word_embeddings", false);
  c.qkv_bias = c.out_bias = json.flag("attention_bias", false);
  c.pre_norm = false, c.post_norm = true;
  c.query_key_norm = QueryKeyNorm::all_heads;
  const std::size_t last = c.layers.size() - 1;
  set_mixers(json, c, [last](std::size_t i) { return i % 4 == 3 || (last < 3 && i == last); });
  if (std::ranges::find(c.layers, Mixer::softmax, &LayerConfig::mixer) == c.layers.end()) {
    json.wrong("layer_types", "full_attention in one layer at least", Json());
  }
  for (LayerConfig& layer : c.layers) layer.pre_norm_alone = layer.mixer == Mixer::gated_delta;
  GatedDeltaConfig s;
  s.key_heads = json.size("linear_num_key_heads", c.heads);
  s.value_heads = json.size("linear_num_value_heads", c.heads);
  s.key_dim = json.size("linear_key_head_dim", std::max<std::int64_t>(3 * c.width / (4 * s.key_heads), 1));
  s.value_dim = json.size("linear_value_head_dim", 2 * s.key_dim);
  s.convolution = json.size("linear_conv_kernel_dim", 4);
  s.doubled_beta = json.flag("linear_allow_neg_eigval", true);
  s.epsilon = 1e-5;  // whatever rms_norm_eps is
  // How weights begin.
  json.pass_over({"linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor"});
  check(json, c, s);
  c.gated_delta = s;
  if (has_no_base(json)) {
    json.pass_over({"rope_parameters", "rope_theta"});
    for (LayerConfig& layer : c.layers) layer.rope = std::nullopt;
  } else {
    add_rope(json, c);
  }
}

void read_qwen3_5(const JsonObject& json, LanguageModelConfig& c) {
  c.tied = json.flag("tie_word_embeddings", false);
  c.qkv_bias = c.out_bias = json.flag("attention_bias", false);
  c.kv_heads = json.size("num_key_value_heads", 4);
  c.head_dim = json.size("head_dim", 256);
  c.norm = NormForm::rms_plus_one;
  c.query_key_norm = QueryKeyNorm::each_head;
  c.output_gate = true;
  // Released files have these beside what transformers reads: the state is float32 here, too, and tokens that a model
  // guesses ahead (mtp) are not read.
  json.require("attn_output_gate", true);
  json.require("mamba_ssm_dtype", "float32");
  json.require("mlp_only_layers", Json::array());
  json.pass_over({"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"});
  const auto interval = static_cast<std::size_t>(json.size("full_attention_interval", 4));
  set_mixers(json, c, [interval](std::size_t i) { return (i + 1) % interval == 0; });
  GatedDeltaConfig s;
  s.key_heads = json.size("linear_num_key_heads", 16);
  s.value_heads = json.size("linear_num_value_heads", 32);
  s.key_dim = json.size("linear_key_head_dim", 128);
  s.value_dim = json.size("linear_value_head_dim", 128);
  s.convolution = json.size("linear_conv_kernel_dim", 4);
  s.epsilon = c.epsilon;
  check(json, c, s);
  c.gated_delta = s;
  add_rope(json, c);
}

std::vector<std::pair<std::string, Shape>> hybrid_shapes(const LanguageModelConfig& config, const std::string& layer) {
  const GatedDeltaConfig& s = *config.gated_delta;
  const RecurrentNames& names = names_of(config.family).of_recurrent;
  const std::string first = layer + names_of(config.family).recurrent;
  const auto named = [&](std::string_view name) { return std::string(first).append(name).append(".weight"); };
  return {{first + "A_log", {s.value_heads}},
          {named(names.convolution), {s.channels(), 1, s.convolution}},
          {named(names.out), {config.width, s.values()}}};
}

}  // namespace attn
