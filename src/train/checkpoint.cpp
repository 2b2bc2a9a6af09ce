// A run's state in a safetensors file.
#include <nlohmann/json.hpp>
#include <type_traits>

#include "attn/error.hpp"
#include "attn/io.hpp"
#include "attn/train.hpp"

namespace attn {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kModel = "model.", kOptimizer = "optimizer.";

// Visits every member of a config by its name in files, with whether all files have it.
template <class Config, class F>
void each_member(Config& c, F&& f) {
  const TrainConfig usual;
  f("steps", c.steps, usual.steps, true);
  f("batch", c.batch, usual.batch, true);
  f("lr", c.lr, usual.lr, true);
  f("min-lr", c.min_lr, usual.min_lr, true);
  f("warmup", c.warmup, usual.warmup, true);
  f("weight-decay", c.optimizer.weight_decay, usual.optimizer.weight_decay, true);
  f("beta1", c.optimizer.beta1, usual.optimizer.beta1, false);
  f("beta2", c.optimizer.beta2, usual.optimizer.beta2, true);
  f("epsilon", c.optimizer.epsilon, usual.optimizer.epsilon, false);
  f("clip", c.clip, usual.clip, true);
  f("eval-every", c.eval_every, usual.eval_every, true);
  f("reproducible", c.reproducible, usual.reproducible, false);
}

Json to_json(const TrainConfig& config, const std::string& others) {
  Json json = Json::parse(others.empty() ? "{}" : others, nullptr, false);
  if (!json.is_object())
    throw Error(Error::Kind::argument, "train", "metadata settings that are a JSON object", others);
  each_member(config, [&](const char* name, const auto& value, const auto& usual, bool always) {
    if (always || value != usual) json[name] = value;
  });
  return json;
}

TrainConfig config_of(const std::string& text, const std::string& source) {
  try {
    const Json json = Json::parse(text);
    TrainConfig config;
    each_member(config, [&]<class T>(const char* name, T& value, const T&, bool always) {
      if (!always && !json.contains(name)) return;
      const Json& found = json.at(name);
      // Throws for 1e300, which is no number of steps, and whose conversion would be undefined.
      if constexpr (std::is_same_v<T, std::int64_t>) {
        static_cast<void>(found.get_ref<const Json::number_integer_t&>());
      }
      found.get_to(value);
    });
    return config;
  } catch (const Json::exception&) {
    throw Error(Error::Kind::data, "train", "the settings of a training run in " + source, "others");
  }
}

Tensor column(const std::vector<double>& values) {
  return Tensor::from(std::span<const double>(values), {static_cast<std::int64_t>(values.size())});
}

std::vector<double> numbers_of(const Tensor& column) {
  const Tensor all = column.to(DType::f64).contiguous();
  return {all.data<double>(), all.data<double>() + all.numel()};
}

// The tensors whose names begin with `prefix`, without it.
StateDict part(const io::NamedTensors& file, std::string_view prefix) {
  StateDict state;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.starts_with(prefix)) state.emplace(name.substr(prefix.size()), tensor);
  }
  return state;
}

void put(io::NamedTensors& file, std::string_view prefix, const StateDict& state) {
  for (const auto& [name, tensor] : state) file.tensors.emplace_back(std::string(prefix) + name, tensor);
}

}  // namespace

void TrainCheckpoint::save(const std::filesystem::path& path) const {
  io::NamedTensors file;
  put(file, kModel, weights);
  put(file, kOptimizer, optimizer);
  std::vector<double> at, loss;
  for (const auto& [step, value] : validations) at.push_back(static_cast<double>(step)), loss.push_back(value);
  file.tensors.insert(file.tensors.end(), {{"generator", generator},
                                           {"losses", column(losses)},
                                           {"skipped", column(skipped)},
                                           {"validation.step", column(at)},
                                           {"validation.loss", column(loss)}});
  file.metadata = metadata;
  file.metadata["settings"] = to_json(config, file.metadata["settings"]).dump();
  for (const auto& [name, own] : {std::pair{"text", text}, {"cut", cut}, {"flavour", flavour}}) {
    if (const auto given = file.metadata.try_emplace(name, own).first; given->second != own) {
      throw Error(Error::Kind::argument, "train",
                  std::string("no metadata ") + name + ": a checkpoint keeps that of its own there", given->second,
                  "choose another name");
    }
  }
  io::save_safetensors(path, file);
}

TrainCheckpoint TrainCheckpoint::load(const std::filesystem::path& path) {
  const io::NamedTensors file = io::load(path);
  TrainCheckpoint all{.metadata = file.metadata, .source = path.string()};
  const auto settings = file.metadata.find("settings"), fingerprint = file.metadata.find("text");
  if (settings == file.metadata.end() || fingerprint == file.metadata.end()) {
    throw Error(Error::Kind::data, "train", "a checkpoint of attn train in " + all.source, "another file");
  }
  const auto tensor = [&](const char* name) -> const Tensor& {
    if (const Tensor* found = file.find(name)) return *found;
    throw Error(Error::Kind::data, "train", std::string("a tensor ") + name + " in " + all.source, "none");
  };
  all.config = config_of(settings->second, all.source);
  all.text = fingerprint->second;
  if (const auto cut = file.metadata.find("cut"); cut != file.metadata.end()) all.cut = cut->second;
  if (const auto flavour = file.metadata.find("flavour"); flavour != file.metadata.end()) all.flavour = flavour->second;
  all.weights = part(file, kModel), all.optimizer = part(file, kOptimizer);
  all.generator = tensor("generator");
  all.losses = numbers_of(tensor("losses"));
  if (const Tensor* skipped = file.find("skipped")) all.skipped = numbers_of(*skipped);
  const auto at = numbers_of(tensor("validation.step")), loss = numbers_of(tensor("validation.loss"));
  if (at.size() != loss.size()) {
    throw Error(Error::Kind::data, "train", std::to_string(at.size()) + " validation losses in " + all.source,
                std::to_string(loss.size()));
  }
  for (std::size_t i = 0; i < at.size(); ++i) {
    constexpr double most = 9e15;  // doubles above have no place for odd numbers
    if (!(at[i] >= 0 && at[i] <= most)) {
      throw Error(Error::Kind::data, "train", "numbers of steps in validation.step of " + all.source, "other numbers");
    }
    all.validations.emplace_back(static_cast<std::int64_t>(at[i]), loss[i]);
  }
  return all;
}

}  // namespace attn
