#include "attn/module.hpp"

#include <string>
#include <string_view>
#include <utility>

#include "attention/special.hpp"
#include "attn/error.hpp"
#include "core/memory.hpp"
#include "ops/weights.hpp"

namespace attn {

namespace {
thread_local bool keeps_for_backward = true;
}  // namespace

NoGrad::NoGrad() noexcept : before_(std::exchange(keeps_for_backward, false)) {}
NoGrad::~NoGrad() { keeps_for_backward = before_; }
bool grad_enabled() noexcept { return keeps_for_backward; }

void Module::train(bool on) {
  training_ = on;
  if (!on) {
    keeps_memory_ = nullptr;
  } else if (!keeps_memory_) {
    keeps_memory_ = std::make_shared<KeepMemory>();
  }
}

Module::Gradient Module::backward(const Tensor&) {
  throw Error(Error::Kind::argument, "backward", "a module with a backward pass", "one without");
}

namespace {

void require_numbers(const Parameter& p) {
  require_present(p);
  if (!p.blocks) return;
  throw Error(Error::Kind::dtype, "state_dict", "weights in float32 or bfloat16", p.name + " in the blocks of a file",
              "load the model in one of these");
}

// A copy in the parameter's dtype. Infinities and NaN stay, but no finite number becomes one.
Tensor converted(const Parameter& p, const Tensor& given) {
  const Tensor value = given.to(p.value.dtype()).clone();
  if (given.dtype() == value.dtype() || is_finite(value.raw(), value.dtype(), value.numel())) return value;
  const Tensor whole = given.contiguous();
  if (!is_finite(whole.raw(), whole.dtype(), whole.numel())) return value;
  throw Error(Error::Kind::data, "load_state_dict", p.name + " within the range of " + std::string(name(value.dtype())),
              "numbers past it");
}

bool hides_later_keys(const Tensor& mask) {
  const std::int64_t tokens = mask.rank() == 2 ? mask.size(0) : 0;
  bool causal = tokens > 0 && tokens == mask.size(1);
  for (std::int64_t i = 0; causal && i < tokens * tokens; ++i) {
    causal = mask.at({i / tokens, i % tokens}) == (i % tokens > i / tokens ? 1.0 : 0.0);
  }
  return causal;
}

}  // namespace

StateDict Module::state_dict() {
  StateDict state;
  for (const Parameter* p : parameters()) require_numbers(*p), state.emplace(p->name, p->value);
  return state;
}

void Module::load_state_dict(const StateDict& state) {
  const auto mine = parameters();
  for (const Parameter* p : mine) {
    require_numbers(*p);
    const auto found = state.find(p->name);
    if (found == state.end()) {
      std::string names;
      for (const auto& [name, value] : state) names.append(names.empty() ? "" : ", ").append(name);
      throw Error(Error::Kind::data, "load_state_dict", "a tensor " + p->name, names.empty() ? "no tensors" : names);
    }
    if (!(found->second.shape() == p->value.shape())) {
      throw Error(Error::Kind::shape, "load_state_dict", p->name + " of shape " + p->value.shape().str(),
                  found->second.shape().str());
    }
    if (!is_floating(found->second.dtype())) {
      throw Error(Error::Kind::dtype, "load_state_dict", p->name + " of a floating dtype", name(found->second.dtype()));
    }
  }
  for (const auto& [key, value] : state) {
    // Beside the weights of a module may stand its mask: "heads.0.mask" beside "heads.0.W_query.weight".
    const bool mask = key == "mask" || key.ends_with(".mask");
    const std::string_view module = std::string_view(key).substr(0, key.size() - 4 * mask);
    bool known = false;
    for (const Parameter* p : mine) known = known || (mask ? p->name.starts_with(module) : p->name == key);
    if (!known) throw Error(Error::Kind::data, "load_state_dict", "only this module's parameters", key);
    if (mask && !hides_later_keys(value)) {
      throw Error(Error::Kind::data, "load_state_dict", key + " that hides the keys after each query", "another mask");
    }
  }
  std::vector<Tensor> values;
  for (const Parameter* p : mine) values.push_back(converted(*p, state.at(p->name)));
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i]->value = values[i];
}

void Module::zero_grad() {
  for (Parameter* p : parameters()) p->grad = {};
}

}  // namespace attn
