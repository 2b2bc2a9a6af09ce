// A training run writes the model, its loss curve, the checkpoint from which it continues, and the model with the
// lowest validation loss, where the last one is not that.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/error.hpp"
#include "common/outputs.hpp"
#include "train/lock.hpp"
#include "train/training.hpp"

namespace attn::tool {

// The files of a GPT replace each other one by one. Those of a released model are a folder, which appears with all of
// them at once. From then on the checkpoint, the weights and the curve are replaced one by one: the config and the
// tokenizer beside them are the same for every step.
class TrainingFiles {
 public:
  // `out` is a .safetensors file, or a folder; `curve` empty: beside the model.
  TrainingFiles(const std::string& out, bool is_folder, const std::string& curve);

  const std::filesystem::path& model() const noexcept { return model_; }
  const std::filesystem::path& checkpoint() const noexcept { return checkpoint_; }
  const std::filesystem::path& curve() const noexcept { return curve_; }
  const std::filesystem::path& best() const noexcept { return best_; }

  // The files that the run reads, each with the flag that names it.
  using Inputs = std::vector<std::pair<std::string, std::filesystem::path>>;

  // Throws Error: (file) where nothing can be written, (argument) for names that are no files of their own or those of
  // inputs, and, unless the run is resumed, (argument) where something is there already that `replace` is not meant
  // for. Takes the lock, and removes what killed runs have left.
  void reserve(bool resume, bool replace, const Inputs& inputs);
  // The folder gets these beside the model.
  void set_companions(Companions files) { companions_ = std::move(files); }
  // The run was read from the checkpoint. All ranks call it.
  void resumed(Training& training);
  // After a step with a validation loss: keeps a copy of weights that have the lowest one. All ranks call it.
  void measured(Training& training);
  // Throws Error (data) for weights that are not finite, and writes nothing. With `keep` the model is also written to a
  // file of this step, which no later step replaces.
  void save(Training& training, bool keep = false);
  bool hold(const Trainer& run) const noexcept { return saved_ == run.steps_done(); }
  // The error of a run that has to end because of what was found. It says what the files still have.
  Error diverged(const std::string& found, std::string_view advice = {}) const;

 private:
  std::vector<std::filesystem::path> beside_model() const;  // that save_language_model() writes or removes
  void require_checkpoint(bool resume) const;
  void require_new() const;
  void require_kept_by_runs() const;
  void require_own_config() const;
  void require_own_curve(const std::filesystem::path& written) const;
  void require_no_input(bool makes_folder, const Inputs& inputs) const;
  void require_replaceable() const;  // a folder
  void write(Training& training, const TrainCheckpoint& checkpoint, bool keep);
  void remove_kept(std::int64_t but) const;  // those of an older run
  void write_best(Training& training, const std::filesystem::path& path);

  std::filesystem::path folder_;  // empty: a GPT's file
  std::filesystem::path model_, checkpoint_, curve_, best_;
  bool curve_named_;  // by --curve
  Outputs outputs_;   // refused before the work, not after it
  std::optional<TrainingLock> lock_;
  Companions companions_;
  std::vector<Tensor> best_weights_;     // in the order of the model's parameters; none where best_ has them
  std::int64_t kept_ = -1, saved_ = -1;  // the checkpoint's step; the same if written by this process
};

}  // namespace attn::tool
