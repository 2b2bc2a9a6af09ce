#include "attn/gpt.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "ops/input.hpp"

namespace attn {
namespace {

constexpr const char* kGpt = "GPT";
constexpr std::int64_t kMostLayers = 1 << 16, kMostWidth = std::int64_t{1} << 40;

void check(const GPTConfig& c) {
  require_positive(kGpt, "vocab_size", c.vocab_size);
  require_positive(kGpt, "context_length", c.context_length);
  require_positive(kGpt, "layers", c.layers);
  if (c.layers > kMostLayers) {
    throw Error(Error::Kind::argument, kGpt, "at most " + std::to_string(kMostLayers) + " layers",
                std::to_string(c.layers));
  }
  require_positive(kGpt, "heads", c.heads);
  require_positive(kGpt, "width", c.width);
  if (c.width > kMostWidth || c.width % c.heads != 0) {
    throw Error(Error::Kind::argument, kGpt, "a width that the heads divide, of at most 2^40",
                std::to_string(c.width) + " and " + std::to_string(c.heads));
  }
}

}  // namespace

GPTConfig gpt2(std::string_view size) {
  constexpr std::array<std::pair<std::string_view, std::int64_t>, 4> layers{
      {{"117M", 12}, {"345M", 24}, {"762M", 36}, {"1.5B", 48}}};
  const ModuleConfig attention = gpt2_attention(size);  // throws for another name
  GPTConfig config;
  config.vocab_size = 50257;
  config.context_length = attention.context_length;
  for (const auto& [name, count] : layers) config.layers = name == size ? count : config.layers;
  config.heads = attention.num_heads;
  config.width = attention.d_out;
  config.dropout = attention.dropout;
  return config;
}

LanguageModelConfig language_model_config(const GPTConfig& config) {
  check(config);
  LanguageModelConfig c;
  c.family = "gpt2";
  c.vocab_size = config.vocab_size;
  c.context_length = config.context_length;
  c.width = config.width;
  c.inner_width = 4 * config.width;
  c.heads = c.kv_heads = config.heads;
  c.head_dim = config.width / config.heads;
  c.layers.assign(static_cast<std::size_t>(config.layers), {.window = 0, .rope = std::nullopt});
  for (std::size_t i = 0; i < c.layers.size() && !config.mixers.empty(); ++i)
    c.layers[i].mixer = config.mixers[i % config.mixers.size()];
  c.learned_positions = true;
  c.norm = NormForm::layer;
  c.epsilon = config.epsilon;
  c.qkv_bias = c.out_bias = c.feed_forward_bias = true;
  c.gated = false;
  c.activation = config.gelu;
  c.dropout = config.dropout;
  c.tied = config.tied;
  c.precision = config.precision;
  return c;
}

GPTConfig gpt_config(const LanguageModelConfig& c) {
  std::vector<Mixer> mixers;
  for (const LayerConfig& layer : c.layers) mixers.push_back(layer.mixer);
  if (std::ranges::count(mixers, Mixer::softmax) == std::ssize(mixers)) mixers.clear();
  return {.vocab_size = c.vocab_size,
          .context_length = c.context_length,
          .layers = static_cast<std::int64_t>(c.layers.size()),
          .heads = c.heads,
          .width = c.width,
          .dropout = c.dropout,
          .epsilon = c.epsilon,
          .gelu = c.activation,
          .tied = c.tied,
          .precision = c.precision,
          .mixers = mixers};
}

}  // namespace attn
