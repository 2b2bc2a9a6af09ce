#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "attn/error.hpp"
#include "attn/optim.hpp"
#include "core/decimal.hpp"
#include "core/rows.hpp"
#include "kernels/targets.hpp"
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

void require_gradient(const Parameter& p) {
  if (!(p.grad.shape() == p.value.shape()) || p.grad.dtype() != DType::f32) {
    throw Error(Error::Kind::shape, kAdamW,
                "a float32 gradient of the shape of " + p.name + ", " + p.value.shape().str(), p.grad.shape().str());
  }
}

}  // namespace

AdamW::AdamW(std::vector<Parameter*> parameters, AdamWConfig config)
    : parameters_(std::move(parameters)), config_(config) {
  check(config);
  for (const Parameter* p : parameters_) {
    if (!p) throw Error(Error::Kind::argument, kAdamW, "parameters", "a null pointer");
    require_present(*p);
    require_float32(kAdamW, p->name.c_str(), p->value);
    if (!p->value.is_contiguous()) throw Error(Error::Kind::shape, kAdamW, "contiguous weights", p->name);
    mean_.push_back(Tensor::zeros(p->value.shape()));
    square_.push_back(Tensor::zeros(p->value.shape()));
  }
}

void AdamW::step(double rate, double grad_factor) {
  if (!std::isfinite(grad_factor)) {
    throw Error(Error::Kind::argument, kAdamW, "a finite grad_factor", std::to_string(grad_factor),
                "leave out a step whose gradient_norm() is not finite, or stop");
  }
  if (!(rate >= 0 && std::isfinite(rate))) {
    throw Error(Error::Kind::argument, kAdamW, "a finite learning rate of at least 0", std::to_string(rate));
  }
  ++steps_;
  const auto n = static_cast<double>(steps_);
  const double mean_correction = 1 - std::pow(config_.beta1, n), square_correction = 1 - std::pow(config_.beta2, n);
  const kernels::ModelKernel& kernel = *kernels::active().model;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = *parameters_[i];
    if (!p.grad.defined()) continue;
    require_gradient(p);
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
    state.emplace("exp_avg." + parameters_[i]->name, mean_[i]);
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
  }
  for (const auto& [name, tensor] : mine) {
    if (name == "steps") {
      steps_ = state.at(name).data<std::int64_t>()[0];
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
    require_gradient(*p);
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
  if (!(limit >= 0))
    throw Error(Error::Kind::argument, kAdamW, "a limit of the norm above 0, or 0 for none", std::to_string(limit));
  if (limit == 0) return 1;
  return std::min(1.0, limit / (norm + 1e-6));
}

double CosineSchedule::rate(std::int64_t step) const {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const auto after = static_cast<double>(std::min(step, steps) - warmup);
  const auto length = static_cast<double>(std::max<std::int64_t>(steps - warmup, 1));
  return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * std::min(1.0, after / length)));
}

}  // namespace attn
