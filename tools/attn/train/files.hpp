// What a training run writes: the model, its loss curve, and the checkpoint from which it continues.
#pragma once

#include <filesystem>
#include <string>

#include "train/run.hpp"

namespace attn::tool {

class TrainingFiles {
 public:
  // `curve` empty: beside the model.
  TrainingFiles(const std::string& model, const std::string& curve);

  const std::filesystem::path& model() const noexcept { return model_; }
  const std::filesystem::path& checkpoint() const noexcept { return checkpoint_; }
  const std::filesystem::path& curve() const noexcept { return curve_; }

  // Throws Error (argument) where there is a model or a checkpoint already.
  void require_new() const;
  // The run was read from the checkpoint.
  void resumed(const Run& run) { kept_ = run.steps_done(); }
  // Throws Error (data) for weights that are not finite, and writes nothing.
  void save(Run& run);
  bool hold(const Run& run) const noexcept { return saved_ == run.steps_done(); }
  // What a run that has to end leaves, for its message.
  std::string kept() const;

 private:
  std::filesystem::path model_, checkpoint_, curve_;
  std::int64_t kept_ = -1, saved_ = -1;  // the checkpoint's step; the same if written by this process
};

}  // namespace attn::tool
