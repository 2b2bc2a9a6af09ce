#include "lm/gguf_hybrid.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace attn {
namespace {

using io::GgufMetadata;
using Json = io::JsonObject::Json;

// Where states stand along an axis. Hugging Face's files have those of a key head one after the other, and llama.cpp's
// the first of each key head, then the second of each.
struct Heads {
  std::int64_t axis = 0, first = 0, keys = 1, count = 1, size = 1;  // behind `first`, count heads of so many numbers

  bool move() const { return keys != count; }
  std::int64_t in_file(std::int64_t at) const {
    if (at < first) return at;
    const std::int64_t head = (at - first) / size, each = count / keys;
    return first + (head % each * keys + head / each) * size + (at - first) % size;
  }
};

bool ends(const std::string& name, std::string_view end) { return name.ends_with(end); }

Heads heads_of(const std::string& name, const GatedDeltaConfig& s) {
  if (ends(name, "norm.weight")) return {};
  Heads heads{.keys = s.key_heads, .count = s.value_heads, .size = s.value_dim};
  if (ends(name, "out_proj.weight")) heads.axis = 1;
  if (ends(name, "in_proj_qkv.weight") || ends(name, "conv1d.weight")) heads.first = 2 * s.keys();
  if (ends(name, "in_proj_a.weight") || ends(name, "in_proj_b.weight") || ends(name, "A_log") || ends(name, "dt_bias"))
    heads.size = 1;
  return heads;
}

Tensor as_hugging_faces(const Tensor& values, const Heads& heads) {
  const std::int64_t axis = heads.axis;
  const bool fits =
      static_cast<std::int64_t>(values.rank()) > axis && values.size(axis) == heads.first + heads.count * heads.size;
  if (!heads.move() || !fits) return values;  // another shape is refused
  const Tensor all = Tensor::empty(values.shape(), values.dtype());
  if (heads.first > 0) all.slice(axis, 0, heads.first).copy_from(values.slice(axis, 0, heads.first));
  for (std::int64_t h = 0; h < heads.count; ++h) {
    const std::int64_t to = heads.first + h * heads.size, from = heads.in_file(to);
    all.slice(axis, to, to + heads.size).copy_from(values.slice(axis, from, from + heads.size));
  }
  return all;
}

// The file has −exp(A_log).
void take_logarithms(const Tensor& a, const std::string& name, const std::string& source) {
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    float& x = a.data<float>()[i];
    if (!(x <= 0)) io::Origin{"load_gguf", source}.fail(name + " of numbers below 0", std::to_string(x));
    x = std::log(-x);
  }
}

}  // namespace

std::int64_t layers_ahead(const GgufMetadata& metadata) {
  const std::int64_t layers = metadata.whole("nextn_predict_layers", 0);
  if (layers < 0 || layers > 1024) {
    metadata.origin().fail("nextn_predict_layers from 0 to 1024", std::to_string(layers));
  }
  return layers;
}

void add_qwen35(Json& config, const GgufMetadata& metadata) {
  const std::int64_t states = metadata.whole("ssm.time_step_rank"), inner = metadata.whole("ssm.inner_size");
  if (states < 1 || inner % states != 0) {
    metadata.origin().fail("ssm.inner_size that is a multiple of ssm.time_step_rank",
                           std::to_string(inner) + " and " + std::to_string(states));
  }
  config["linear_num_value_heads"] = states, config["linear_value_head_dim"] = inner / states;
  config["linear_num_key_heads"] = metadata.whole("ssm.group_count");
  config["linear_key_head_dim"] = metadata.whole("ssm.state_size");
  config["linear_conv_kernel_dim"] = metadata.whole("ssm.conv_kernel");
  config["full_attention_interval"] = metadata.whole("full_attention_interval", 4);
  if (const auto* recurrent = metadata.find<std::vector<bool>>("attention.recurrent_layers")) {
    const auto layers = static_cast<std::size_t>(config["num_hidden_layers"].get<std::int64_t>());
    Json types = Json::array();
    for (std::size_t i = 0; i < std::min(recurrent->size(), layers); ++i)
      types.push_back((*recurrent)[i] ? "linear_attention" : "full_attention");
    config["layer_types"] = types;  // as many as layers, which the config's reader asks for
  }
  metadata.find("rope.dimension_sections");  // of pictures' positions: those of a text are alike
  const double head_dim = config["head_dim"].get<double>();
  config["partial_rotary_factor"] = static_cast<double>(metadata.whole("rope.dimension_count")) / head_dim;
}

StoredTensor stored_recurrent(const std::shared_ptr<const io::Gguf>& file, const io::GgufTensor& tensor,
                              const std::string& name, const GatedDeltaConfig& sizes, const std::string& source) {
  const Heads heads = heads_of(name, sizes);
  const bool logarithms = ends(name, "A_log"), kernel = ends(name, "conv1d.weight") && tensor.shape.size() == 2;
  const auto load = [=](DType dtype) {
    Tensor values = as_hugging_faces(file->load(tensor, logarithms ? DType::f32 : dtype), heads);
    if (logarithms) take_logarithms(values, tensor.name, source);
    if (kernel) values = values.view({values.size(0), 1, values.size(1)});
    return values.to(dtype);
  };
  Shape shape = tensor.shape;
  if (kernel) shape = {shape[0], 1, shape[1]};
  StoredTensor all{name, std::string(io::name(tensor.type)), shape, tensor.bytes, load};
  const bool whole =
      heads.axis == 0 && shape.size() == 2 && (!heads.move() || shape[0] == heads.first + heads.count * heads.size);
  if (io::is_quantized(tensor.type) && (whole || (shape.size() == 2 && !heads.move()))) {
    all.load_blocks = [=](std::int64_t first, std::int64_t last) {
      return file->load_blocks(tensor, first, last, [=](std::int64_t row) { return heads.in_file(row); });
    };
  }
  return all;
}

}  // namespace attn
