// A training run: steps, measurements, and the checkpoint that holds all of it.
#pragma once

#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attn/gradient_sum.hpp"
#include "attn/optim.hpp"
#include "attn/weight_shards.hpp"
#include "train/model.hpp"
#include "train/ranks.hpp"
#include "train/settings.hpp"
#include "train/text.hpp"

namespace attn::tool {

class Run {
 public:
  // Without a model, a new GPT of the settings, or with weights one that has these.
  Run(const TrainSettings& settings, const Text& text, std::unique_ptr<TrainedModel> model = nullptr,
      const TrainRanks& ranks = {}, const StateDict& weights = {});
  Run(const Run&) = delete;  // the optimizer points into the model
  Run& operator=(const Run&) = delete;

  struct Step {
    double loss = 0, norm = 0, rate = 0;
    std::optional<double> validation;  // measured after this step
    bool finite() const noexcept { return std::isfinite(loss) && std::isfinite(norm); }
  };
  // One step; its loss is that before the weights changed. One that is not finite changes nothing but the generator,
  // which draws another batch for the next, and is no step: it is counted in skipped().
  Step step();
  // Seconds that a step takes, by one that changes nothing: neither weights nor the generator.
  double trial();
  // Whether all weights that this rank keeps are.
  bool finite();
  double validate();  // mean loss, in nats a token

  std::int64_t tokens_a_step() const noexcept { return settings_.batch * settings_.model.context_length; }
  std::int64_t steps_done() const noexcept { return optimizer_.steps(); }
  const TrainRanks& ranks() const noexcept { return ranks_; }
  // Of all weights that the run began with, to be compared; of one rank nothing.
  const std::string& fingerprint() const noexcept { return fingerprint_; }
  // While it lives, the first rank's model has all of its weights, to be saved. All ranks make it.
  std::shared_ptr<void> whole_weights();
  bool done() const noexcept { return steps_done() >= settings_.steps; }
  const TrainSettings& settings() const noexcept { return settings_; }
  TrainedModel& model() noexcept { return *model_; }
  const std::vector<double>& losses() const noexcept { return losses_; }  // of every step
  // The steps whose place was taken by another batch; one step may be here several times.
  const std::vector<double>& skipped() const noexcept { return skipped_; }
  // (step, loss) of every measurement.
  const std::vector<std::pair<std::int64_t, double>>& validations() const noexcept { return validations_; }

  // Weights, optimizer, generator, place in the text and both curves, in one file that is whole or untouched. The first
  // rank writes it.
  void save(const std::filesystem::path& path) const;
  // Continues bit for bit where save() left. Throws Error (data) for another text, or a file that is no checkpoint.
  static std::unique_ptr<Run> resume(const std::filesystem::path& path, const std::vector<std::string>& files,
                                     const Tokenizer& tokenizer, std::optional<Text>& text,
                                     const TrainRanks& ranks = {});

 private:
  // The loss and the gradients of the next batch.
  Step gradients();
  std::vector<Parameter*> kept() const;  // weights, of which others are other ranks'
  // The same by groups of texts, each with a stream of dropout of its own; returns the loss.
  double gradients_by_groups(const Batch& batch);
  double validate_by_texts();
  StateDict optimizer_state() const;  // on the first rank, of all
  void load_optimizer(const StateDict& state);
  void write(const std::filesystem::path& path, const StateDict& optimizer) const;

  TrainSettings settings_;
  TrainRanks ranks_;
  const Text* text_;
  Generator rng_, dropout_;  // one stream, but for groups
  std::unique_ptr<TrainedModel> model_;
  std::string fingerprint_;
  TextShare share_;
  std::shared_ptr<distributed::WeightShards> weights_;  // null where this rank has all of them
  std::unique_ptr<distributed::GradientSum> sum_;       // of groups; null where a batch is computed as a whole
  AdamW optimizer_;
  std::vector<Batch> validation_;
  std::vector<double> losses_, skipped_;
  std::vector<std::pair<std::int64_t, double>> validations_;
};

}  // namespace attn::tool
