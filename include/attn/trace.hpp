// Trace: the named steps of one forward pass, in the order in which they were taken, and where a pass can be changed.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/tensor.hpp"

namespace attn {

// A module given a Trace computes attention by the plain reference (projections as ever) and records each step
// by its name in attn/steps.hpp, of those that the module takes. Heads computed one after the other are
// "heads.0.queries", ….
//
// A module given a Trace with an Editor records nothing: the editor is handed each step that it watches, and the pass
// goes on with what it returns. Attention is computed by the kernels unless a step between its inputs and its context
// is watched. Such a pass has no backward pass. attn/experiment.hpp is what most users want.
class Trace {
 public:
  using Entry = std::pair<std::string, Tensor>;
  struct Editor {
    std::function<bool(const std::string& step)> watches = {};
    // Returns a tensor that nobody else holds, since later steps may change it in place, or `value`.
    std::function<Tensor(const std::string& step, const Tensor& value)> edit = {};
  };

  Trace() = default;
  explicit Trace(Editor editor) : editor_(std::move(editor)) {}

  // Each step of a pass goes through here: it is recorded, or edited where the editor watches it. Returns the tensor
  // that the pass goes on with.
  Tensor pass(std::string_view name, const Tensor& value);
  bool watches(std::string_view name) const { return !editor_.watches || editor_.watches(full(name)); }
  bool edits() const noexcept { return editor_.edit != nullptr; }
  // Keeps a copy: what is later done to `value`, in place or not, does not alter what was recorded.
  void record(std::string_view name, const Tensor& value);
  const std::vector<Entry>& steps() const noexcept { return steps_; }
  bool contains(std::string_view name) const noexcept;
  const Tensor& operator[](std::string_view name) const;  // throws Error (argument), listing the names

  // Everything recorded through the returned scope's lifetime is named "prefix.name".
  class Scope {
   public:
    Scope(Trace* trace, std::string_view prefix);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Trace* trace_;
    std::size_t length_;
  };

 private:
  std::string full(std::string_view name) const { return prefix_ + std::string(name); }

  Editor editor_;
  std::string prefix_;
  std::vector<Entry> steps_;
};

// A step of a pass that may have no trace.
inline Tensor pass(Trace* trace, std::string_view name, const Tensor& value) {
  return trace ? trace->pass(name, value) : value;
}

}  // namespace attn
