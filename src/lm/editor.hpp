// The trace through which edits act on one pass.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "attn/edits.hpp"
#include "attn/language_model.hpp"

namespace attn::editing {

// Returns what a head of a layer sees, or all of them, beside these edits.
Seen seen_in(const LanguageModelConfig& config, const Edits& edits, std::int64_t layer,
             std::optional<std::int64_t> head);
// Where a trace of this model has the step "context" of a layer's attention, "output" of its block, …
std::string step_name(const LanguageModelConfig& config, Edit::Of of, std::int64_t layer, std::string_view step);

// Keeps what comes by in a pass: steps by their whole names.
using Kept = std::map<std::string, Tensor, std::less<>>;

// Lives for one pass, which has no backward pass.
class Editor {
 public:
  // `steps`: records the pass as edited; null: nothing does. Throws Error for a layer that is not there.
  Editor(const Edits& edits, const LanguageModelConfig& config, Trace* steps = nullptr);
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  // From now on the steps of these names are kept, as edited.
  void keep(const std::set<std::string>& names) { kept_names_ = names; }
  const Tensor& kept(const std::string& name) const;
  Kept take() { return std::move(kept_); }
  Trace* trace() { return idle() ? nullptr : &trace_; }
  // Throws Error (argument) where an edit has touched nothing, as its step was not there.
  void check() const;

 private:
  struct Placed {
    Edit edit;
    std::string step, from;  // whole names
    Seen seen;
    bool done = false;
  };
  bool idle() const { return edits_.empty() && steps_ == nullptr && kept_names_.empty(); }
  bool watches(const std::string& name);
  Tensor act(const std::string& name, const Tensor& value);

  NoGrad no_grad_;
  std::vector<Placed> edits_;
  Trace* steps_;
  Trace trace_;
  std::set<std::string> kept_names_, seen_;
  std::map<std::string, Tensor> sources_;  // of edits that take another step's value
  Kept kept_;
};

// The model's forward pass with these options; the public forward() of language models and encoders.
template <class Model>
Tensor forward(Model& model, const LanguageModelConfig& config, const Tensor& ids, const ForwardOptions& options) {
  const NoGrad nothing_is_kept;
  if (options.edits.empty()) return model.forward(ids, options.trace);
  Editor editor(options.edits, config, options.trace);
  const Tensor y = model.forward(ids, editor.trace());
  editor.check();
  return y;
}

}  // namespace attn::editing
