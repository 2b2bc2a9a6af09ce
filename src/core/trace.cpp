#include "attn/trace.hpp"

#include <algorithm>

#include "attn/error.hpp"

namespace attn {

void Trace::record(std::string_view name, const Tensor& value) {
  if (!value.defined()) throw Error(Error::Kind::argument, "trace", "a tensor for " + full(name), "none");
  steps_.emplace_back(full(name), value.clone());
}

Tensor Trace::pass(std::string_view name, const Tensor& value) {
  if (edits()) {
    const Tensor edited = watches(name) ? editor_.edit(full(name), value) : value;
    if (edited.defined()) return edited;
    throw Error(Error::Kind::argument, "trace", "a tensor for " + full(name), "none");
  }
  record(name, value);
  return value;
}

bool Trace::contains(std::string_view name) const noexcept {
  return std::any_of(steps_.begin(), steps_.end(), [&](const Entry& step) { return step.first == name; });
}

const Tensor& Trace::operator[](std::string_view name) const {
  std::string names;
  for (const auto& [step, value] : steps_) {
    if (step == name) return value;
    names.append(names.empty() ? "" : ", ").append(step);
  }
  throw Error(Error::Kind::argument, "trace", "a step among: " + names, name);
}

Trace::Scope::Scope(Trace* trace, std::string_view prefix) : trace_(trace), length_(trace ? trace->prefix_.size() : 0) {
  if (trace_) trace_->prefix_.append(prefix).append(".");
}

Trace::Scope::~Scope() {
  if (trace_) trace_->prefix_.resize(length_);
}

}  // namespace attn
