// A training run is made of flags, and of what a checkpoint says of the run that it continues.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attn/gpt.hpp"
#include "attn/train.hpp"
#include "common/json.hpp"
#include "common/options.hpp"

namespace attn::tool {

// All that decides the numbers of a run.
struct TrainSettings {
  GPTConfig model{.context_length = 128, .layers = 4, .heads = 4, .width = 128};  // minutes on two cores
  TrainConfig train;
  double validation = 0.1;
  std::uint64_t seed = 1337;
  std::string rng = "philox";
  // Which model is made; a checkpoint has its config.json instead.
  std::string family = "gpt2", config;
  std::int64_t kv_heads = 0;
  std::string mixer = "softmax";  // of the layers: "gated-delta:3,softmax:1"
};

// Adds the flags of the above.
void add_train_settings(Verb& verb, TrainSettings& settings, std::string& precision, std::string& gelu);
// The same flags, by name, as given on the command line.
std::vector<std::string> given_settings(const Verb& verb);

// "gated-delta:3,softmax:1" → three and one, and so on; empty for softmax alone. Throws Error (argument), also for
// more than there are layers, of which some would be left out.
std::vector<Mixer> parse_mixers(const std::string& text, std::optional<std::int64_t> layers = {});

// The flag that sets what C++ calls by this name: "TrainConfig::min_lr".
std::string flag_of(std::string_view member);

Json to_json(const TrainSettings& settings);
// Throws Error (data) for what to_json() would not write.
TrainSettings parse_settings(const std::string& json, const std::string& source);

}  // namespace attn::tool
