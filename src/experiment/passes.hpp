// The experiments that take many passes, a few of them at a time, so that who asks for them can do other things
// between.
#pragma once

#include <vector>

#include "attn/experiment.hpp"
#include "lm/editor.hpp"

namespace attn::experiment {

// Holds what goes into each layer of a pass, what else was kept, and the pass's logits (t, vocab).
struct Prefix {
  std::vector<Tensor> inputs;
  editing::Kept kept;
  Tensor logits;
};

// Passes that begin in the layer where they differ, layer by layer. The model outlives them.
class Passes {
 public:
  Passes(const Passes&) = delete;
  Passes& operator=(const Passes&) = delete;
  virtual ~Passes() = default;

  std::int64_t left() const noexcept { return left_; }
  // At most `most` of them, 1 or more, that begin in one layer.
  void some(std::int64_t most);
  void all();

 protected:
  Passes(LanguageModel& model, const Tensor& ids, const Edits& edits) : model_(&model), ids_(ids), edits_(edits) {}
  LanguageModel& model() const noexcept { return *model_; }
  const Tensor& ids() const noexcept { return ids_; }
  // How many begin in each layer.
  void begin(std::vector<std::int64_t> counts);

 private:
  // For passes `first`, `first` + 1, … of a layer, these give what goes into it (count, t, width) and what differs, and
  // take what came out.
  virtual Tensor input(std::int64_t layer, std::int64_t first, std::int64_t count) const = 0;
  virtual Edit difference(std::int64_t layer, std::int64_t first) const = 0;
  virtual void take(std::int64_t layer, std::int64_t first, const Tensor& hidden) = 0;

  LanguageModel* model_;
  Tensor ids_;   // of the text that is measured
  Edits edits_;  // that act in every pass
  std::vector<std::int64_t> counts_;
  std::int64_t layer_ = 0, first_ = 0, left_ = 0;
};

// head_effects() of these heads of each layer.
class HeadsOff final : public Passes {
 public:
  HeadsOff(LanguageModel& model, const Tensor& ids, const EffectOptions& options,
           std::vector<std::vector<std::int64_t>> heads);
  Effects found;

 private:
  Tensor input(std::int64_t layer, std::int64_t first, std::int64_t count) const override;
  Edit difference(std::int64_t layer, std::int64_t first) const override;
  void take(std::int64_t layer, std::int64_t first, const Tensor& hidden) override;
  std::int64_t head(std::int64_t layer, std::int64_t item) const {
    return heads_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(item)];
  }

  EffectOptions options_;
  std::vector<std::vector<std::int64_t>> heads_;
  std::vector<Tensor> inputs_;
};
std::vector<std::vector<std::int64_t>> all_heads(const LanguageModelConfig& config);

// patching(): of each layer a pass for each position at which the texts differ there, and then one for each head.
class Patched final : public Passes {
 public:
  Patched(LanguageModel& model, const Tensor& clean, const Tensor& corrupt, TokenPair tokens, const Edits& edits);
  Patching found;

 private:
  Tensor input(std::int64_t layer, std::int64_t first, std::int64_t count) const override;
  Edit difference(std::int64_t layer, std::int64_t first) const override;
  void take(std::int64_t layer, std::int64_t first, const Tensor& hidden) override;

  TokenPair tokens_;
  Prefix good_, bad_;
  std::vector<std::vector<std::int64_t>> positions_;
};

}  // namespace attn::experiment
