// Trace: the named steps of one forward pass, in the order in which they were taken.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/tensor.hpp"

namespace attn {

// A module given a Trace computes attention by the plain reference (projections as ever) and records each step
// by its name in attn/steps.hpp, of those that the module takes. Heads computed one after the other are
// "heads.0.queries", ….
class Trace {
 public:
  using Entry = std::pair<std::string, Tensor>;

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
  std::string prefix_;
  std::vector<Entry> steps_;
};

}  // namespace attn
