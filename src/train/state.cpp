// A checkpoint keeps a run's state, and a run goes on from it. Ranks put the optimizer's state together, and part
// it again.
#include <algorithm>

#include "attn/error.hpp"
#include "attn/gradient_sum.hpp"
#include "attn/train.hpp"
#include "attn/weight_shards.hpp"

namespace attn {
namespace {

constexpr const char* kMeans[] = {"exp_avg.", "exp_avg_sq."};

void require_as_before(const char* expected, const TrainCheckpoint& from, const std::string& before,
                       const std::string& now) {
  if (before.empty() || before == now) return;
  throw Error(Error::Kind::data, "train", expected + from.source + ": " + before, now);
}

// Returns the model with a checkpoint's weights, if the text and how it is drawn are the same.
LanguageModel& restored(LanguageModel& model, const Generator& rng, const TrainText& text,
                        const TrainCheckpoint& from) {
  if (text.fingerprint() != from.text) {
    throw Error(Error::Kind::data, "train", "the text that " + from.source + " was trained on", "another",
                "give the same files, and their tokenizer");
  }
  require_as_before("the text cut as in ", from, from.cut, text.cut());
  require_as_before("a generator of the flavour of ", from, from.flavour, std::string(name(rng.flavour())));
  const auto parameters = model.parameters();
  const bool has_them = std::ranges::all_of(parameters, [&](const Parameter* p) {
    const auto found = from.weights.find(p->name);
    return found != from.weights.end() && p->value.raw() == found->second.raw();
  });
  if (!has_them) model.load_state_dict(from.weights);
  return model;
}

// Checks a mean of AdamW, before it is divided.
void require_mean(const StateDict& state, const std::string& name, const Shape& shape) {
  const auto found = state.find(name);
  if (found != state.end() && found->second.shape() == shape && found->second.dtype() == DType::f32) return;
  throw Error(Error::Kind::data, "train", "optimizer." + name + " of shape " + shape.str() + " in float32",
              found == state.end()
                  ? "none"
                  : found->second.shape().str() + " in " + std::string(attn::name(found->second.dtype())));
}

}  // namespace

Trainer::Trainer(LanguageModel& model, const Generator& rng, const TrainText& text, const TrainCheckpoint& from,
                 const TrainRanks& ranks)
    : Trainer(restored(model, rng, text, from), rng, text, from.config, ranks) {
  load_optimizer(from.optimizer);
  rng_.set_state(from.generator);
  losses_ = from.losses, skipped_ = from.skipped, validations_ = from.validations;
  const auto is_done = [&](double step) { return step >= 0 && step <= static_cast<double>(steps_done()); };
  if (static_cast<std::int64_t>(losses_.size()) != steps_done() ||
      !std::ranges::all_of(validations_, [&](const auto& one) { return is_done(static_cast<double>(one.first)); }) ||
      !std::ranges::all_of(skipped_, [&](double step) { return is_done(step - 1); })) {
    throw Error(Error::Kind::data, "train", "curves of the steps that " + from.source + " names", "other ones");
  }
}

std::vector<Parameter*> Trainer::kept() const { return weights_ ? sum_->own() : model_.parameters(); }

// The state as AdamW of all parameters has it, whoever keeps which part: on the first rank.
StateDict Trainer::optimizer_state() const {
  const StateDict own = optimizer_.state_dict();
  if (!sum_) return own;
  StateDict all{{"steps", own.at("steps")}};
  const auto parameters = model_.parameters();
  for (const char* prefix : kMeans) {
    std::vector<Tensor> parts;
    for (const Parameter* p : sum_->own()) parts.push_back(own.at(prefix + p->name));
    const std::vector<Tensor> whole = sum_->gathered(parts);
    for (std::size_t i = 0; i < whole.size(); ++i) all.emplace(prefix + parameters[i]->name, whole[i]);
  }
  return all;
}

void Trainer::load_optimizer(const StateDict& state) {
  if (ranks_.sharding == Sharding::none || !sum_) return optimizer_.load_state_dict(state);
  const auto parameters = model_.parameters();
  StateDict own;
  if (const auto steps = state.find("steps"); steps != state.end()) own.insert(*steps);
  for (const char* prefix : kMeans) {
    std::vector<Tensor> whole;
    for (const Parameter* p : parameters) {
      require_mean(state, prefix + p->name, p->value.shape());
      whole.push_back(state.at(prefix + p->name));
    }
    const std::vector<Tensor> parts = sum_->own_parts(whole);
    for (std::size_t i = 0; i < parts.size(); ++i) own.emplace(prefix + sum_->own()[i]->name, parts[i]);
  }
  optimizer_.load_state_dict(own);
}

TrainCheckpoint Trainer::checkpoint() const {
  TrainCheckpoint all{.config = config_,
                      .text = text_.fingerprint(),
                      .cut = text_.cut(),
                      .flavour = std::string(name(rng_.flavour())),
                      .optimizer = optimizer_state()};
  for (const Parameter* p : model_.parameters()) all.weights.emplace(p->name, p->value);
  all.generator = rng_.state();
  all.losses = losses_, all.skipped = skipped_, all.validations = validations_;
  return all;
}

std::shared_ptr<void> Trainer::whole_weights() {
  if (!weights_) return nullptr;
  weights_->gather(0);
  return {weights_.get(), [](distributed::WeightShards* shards) { shards->divide(); }};
}

void Trainer::save(const std::filesystem::path& path, const std::map<std::string, std::string>& metadata) {
  const auto whole = whole_weights();
  TrainCheckpoint all = checkpoint();
  all.metadata = metadata;
  std::string failure;
  if (ranks_.first()) {
    try {
      all.save(path);
    } catch (const Error& error) {
      if (ranks_.size() == 1) throw;
      failure = error.what();
    }
  }
  if (ranks_.size() == 1) return;
  failure = ranks_.transport->all_gather(failure).front();
  if (!failure.empty()) throw Error(Error::Kind::file, "train", "a checkpoint that rank 0 can write", failure);
}

}  // namespace attn
