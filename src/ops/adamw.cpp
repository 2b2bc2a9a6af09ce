#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <string>

#include "attn/error.hpp"
#include "attn/optim.hpp"
#include "core/decimal.hpp"
#include "core/rows.hpp"
#include "kernels/targets.hpp"
#include "ops/input.hpp"
#include "ops/weights.hpp"

namespace attn {
namespace {

constexpr const char* kAdamW = "AdamW";

void check(const AdamWConfig& c) {
  const auto require = [](const char* what, const char* range, double x, bool holds) {
    if (holds) return;
    throw Error(Error::Kind::argument, kAdamW, std::string(what) + " " + range, shortest_decimal(x));
  };
  const auto fraction = [&](const char* what, double beta) {
    require(what, "from 0 to below 1", beta, beta >= 0 && beta < 1);
  };
  const auto finite = [&](const char* what, double x) {
    require(what, "finite and of at least 0", x, x >= 0 && std::isfinite(x));
  };
  fraction("beta1", c.beta1);
  fraction("beta2", c.beta2);
  finite("epsilon", c.epsilon);
  finite("weight_decay", c.weight_decay);
}

void require_gradient(const char* op, const Parameter& p) {
  require_float32(op, ("the gradient of " + p.name).c_str(), p.grad);
  if (!(p.grad.shape() == p.value.shape())) {
    throw Error(Error::Kind::shape, op, "a float32 gradient of the shape of " + p.name + ", " + p.value.shape().str(),
                p.grad.shape().str());
  }
}

// A weight may have been replaced since the optimizer was made.
void require_as_made(const Parameter& p, const Tensor& mean) {
  require_float32(kAdamW, p.name.c_str(), p.value);
  if (!(p.value.shape() == mean.shape()) || !p.value.is_contiguous()) {
    throw Error(Error::Kind::shape, kAdamW, p.name + " as it was, contiguous, of shape " + mean.shape().str(),
                p.value.shape().str() + (p.value.is_contiguous() ? "" : " with strides " + p.value.strides().str()),
                "make an optimizer of the new weights");
  }
  if (p.grad.defined()) require_gradient(kAdamW, p);
}

// Returns how many steps a state has taken.
std::int64_t checked_steps(const Tensor& steps) {
  const std::int64_t count = steps.data<std::int64_t>()[0];
  constexpr std::int64_t kMost = std::int64_t{1} << 53;  // which double still counts
  if (count < 0 || count > kMost) throw Error(Error::Kind::data, kAdamW, "steps from 0 to 2^53", std::to_string(count));
  return count;
}

void require_moments(const std::string& name, const Tensor& moments) {
  const bool squares = name.starts_with("exp_avg_sq.");
  const Tensor all = moments.contiguous();
  for (const float x : std::span(all.data<float>(), static_cast<std::size_t>(all.numel()))) {
    if (std::isfinite(x) && (!squares || x >= 0)) continue;
    throw Error(Error::Kind::data, kAdamW, name + (squares ? " finite and of at least 0" : " finite"),
                shortest_decimal(static_cast<double>(x)));
  }
}

}  // namespace

AdamW::AdamW(std::vector<Parameter*> parameters, AdamWConfig config)
    : parameters_(std::move(parameters)), config_(config) {
  check(config);
  for (const Parameter* p : parameters_) {
    if (!p) throw Error(Error::Kind::argument, kAdamW, "pointers to parameters", "a null pointer");
    require_present(*p);
    require_float32(kAdamW, p->name.c_str(), p->value);
    if (!p->value.is_contiguous())
      throw Error(Error::Kind::shape, kAdamW, p->name + " contiguous", "strides " + p->value.strides().str(),
                  "put contiguous() in its place");
    mean_.push_back(Tensor::zeros(p->value.shape()));
    square_.push_back(Tensor::zeros(p->value.shape()));
  }
}

void AdamW::step(double rate, double grad_factor) {
  if (!std::isfinite(grad_factor)) {
    throw Error(Error::Kind::argument, kAdamW, "a finite grad_factor", shortest_decimal(grad_factor),
                "leave out a step whose gradient_norm() is not finite, or stop");
  }
  if (!(rate >= 0 && std::isfinite(rate))) {
    throw Error(Error::Kind::argument, kAdamW, "a finite learning rate of at least 0", shortest_decimal(rate));
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) require_as_made(*parameters_[i], mean_[i]);
  ++steps_;
  const auto n = static_cast<double>(steps_);
  const double mean_correction = 1 - std::pow(config_.beta1, n), square_correction = 1 - std::pow(config_.beta2, n);
  const kernels::ModelKernel& kernel = *kernels::active().model;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = *parameters_[i];
    if (!p.grad.defined()) continue;
    const Tensor grad = p.grad.contiguous();
    const double decay = p.value.rank() >= 2 ? config_.weight_decay : 0;
    for_runs(grad.numel(), 20, [&](std::int64_t first, std::int64_t count) {
      kernel.adamw({count, p.value.data<float>() + first, mean_[i].data<float>() + first,
                    square_[i].data<float>() + first, grad.data<float>() + first, static_cast<float>(grad_factor),
                    static_cast<float>(config_.beta1), static_cast<float>(config_.beta2),
                    static_cast<float>(1 - rate * decay), static_cast<float>(rate / mean_correction),
                    static_cast<float>(1 / std::sqrt(square_correction)), static_cast<float>(config_.epsilon)});
    });
  }
}

StateDict AdamW::state_dict() const {
  StateDict state;
  const Tensor steps = Tensor::zeros({1}, DType::i64);
  steps.data<std::int64_t>()[0] = steps_;
  state.emplace("steps", steps);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!state.emplace("exp_avg." + parameters_[i]->name, mean_[i]).second) {
      throw Error(Error::Kind::argument, kAdamW, "parameters of different names, for a state", parameters_[i]->name);
    }
    state.emplace("exp_avg_sq." + parameters_[i]->name, square_[i]);
  }
  return state;
}

void AdamW::load_state_dict(const StateDict& state) {
  const StateDict mine = state_dict();
  for (const auto& [name, tensor] : mine) {
    const auto found = state.find(name);
    if (found == state.end())
      throw Error(Error::Kind::data, kAdamW, "a tensor " + name, "none in the optimizer's state");
    const Tensor& given = found->second;
    if (!(given.shape() == tensor.shape())) {
      throw Error(Error::Kind::shape, kAdamW, name + " of shape " + tensor.shape().str(), given.shape().str());
    }
    if (given.dtype() != tensor.dtype()) {
      throw Error(Error::Kind::dtype, kAdamW, name + " of dtype " + std::string(attn::name(tensor.dtype())),
                  attn::name(given.dtype()));
    }
    name == "steps" ? void(checked_steps(given)) : require_moments(name, given);
  }
  for (const auto& [name, tensor] : state) {
    if (!mine.contains(name)) throw Error(Error::Kind::data, kAdamW, "only this optimizer's state", name);
  }
  for (const auto& [name, tensor] : mine) {
    if (name == "steps") {
      steps_ = checked_steps(state.at(name));
    } else {
      tensor.copy_from(state.at(name));
    }
  }
}

double gradient_norm(std::span<Parameter* const> parameters) {
  const kernels::ModelKernel& kernel = *kernels::active().model;
  constexpr std::int64_t kRun = 65536;
  double sum = 0;
  for (const Parameter* p : parameters) {
    if (!p->grad.defined()) continue;
    require_gradient("gradient_norm", *p);
    const Tensor grad = p->grad.contiguous();
    std::vector<double> parts(static_cast<std::size_t>((grad.numel() + kRun - 1) / kRun));
    const auto part = [&](std::int64_t first, std::int64_t count) {
      parts[static_cast<std::size_t>(first / kRun)] = kernel.sum_of_squares(count, grad.data<float>() + first);
    };
    for_runs(grad.numel(), 2, part, kRun);
    for (const double some : parts) sum += some;
  }
  return std::sqrt(sum);
}

double clip_factor(double norm, double limit) {
  if (!std::isfinite(norm)) return std::numeric_limits<double>::quiet_NaN();
  if (norm < 0) throw Error(Error::Kind::argument, "clip_factor", "a norm of at least 0", shortest_decimal(norm));
  if (!(limit >= 0))
    throw Error(Error::Kind::argument, "clip_factor", "a limit of the norm above 0, or 0 for none",
                shortest_decimal(limit));
  if (limit == 0) return 1;
  return std::min(1.0, limit / (norm + 1e-6));
}

double CosineSchedule::rate(std::int64_t step) const {
  for (const auto& [what, number] : {std::pair{"step", step}, {"warmup", warmup}, {"steps", steps}}) {
    if (number < 0)
      throw Error(Error::Kind::argument, "CosineSchedule", std::string(what) + " of at least 0",
                  std::to_string(number));
  }
  for (const double each : {peak, floor}) require_finite("CosineSchedule", "peak and floor", each, 0);
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const auto after = static_cast<double>(std::min(step, steps) - warmup);
  const auto length = static_cast<double>(std::max<std::int64_t>(steps - warmup, 1));
  return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * std::min(1.0, after / length)));
}

}  // namespace attn
