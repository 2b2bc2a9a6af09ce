// The mechanisms without trained projections, and the one with torch.rand's.
#include "attn/modules.hpp"
#include "attn/reference.hpp"
#include "ops/input.hpp"

namespace attn {

namespace ref = reference;

Tensor SimplifiedSelfAttention::forward(const Tensor& x, Trace* trace) {
  require_input("SimplifiedSelfAttention", "x", x, 0);
  const Tensor inputs = pass(trace, "inputs", x);
  const Tensor scores = pass(trace, "scores", ref::scores(inputs, inputs));
  const Tensor weights = pass(trace, "weights", ref::softmax(scores));
  return pass(trace, "context", ref::weighted_sum(weights, inputs));
}

Tensor AveragePast::forward(const Tensor& x, Trace* trace) {
  require_input("AveragePast", "x", x, 0);
  const Tensor average = ref::average_past(x, ref::AverageBy::triangular);
  if (trace) {
    trace->record("inputs", x);
    trace->record("weights", ref::average_weights(x.size(-2), ref::AverageBy::triangular));
    trace->record("context", average);
  }
  return average;
}

SelfAttentionV1::SelfAttentionV1(std::int64_t d_in, std::int64_t d_out, Generator& rng) {
  require_positive("SelfAttentionV1", "d_in", d_in);
  require_positive("SelfAttentionV1", "d_out", d_out);
  W_query = {"W_query", rng.rand({d_in, d_out}), {}};
  W_key = {"W_key", rng.rand({d_in, d_out}), {}};
  W_value = {"W_value", rng.rand({d_in, d_out}), {}};
}

Tensor SelfAttentionV1::forward(const Tensor& x, Trace* trace) {
  require_whole("SelfAttentionV1", W_query.value.defined());
  require_input("SelfAttentionV1", "x", x, W_query.value.size(0));
  const bool batched = x.rank() == 3;
  const Tensor inputs = pass(trace, "inputs", x);
  x_ = batched ? inputs : inputs.unsqueeze(0);
  const auto project = [this](const Parameter& w) { return ref::matmul(x_, w.value).unsqueeze(1); };
  q_ = project(W_query), k_ = project(W_key), v_ = project(W_value);
  Trace steps = trace ? steps_within(*trace, !batched, true) : Trace{};
  const Tensor context = attention(q_, k_, v_, {}, trace ? &steps : nullptr).output.select(1, 0);
  if (!grad_enabled()) x_ = q_ = k_ = v_ = {};
  return batched ? context : context.select(0, 0);
}

Module::Gradient SelfAttentionV1::backward(const Tensor& dz) {
  require_forward("SelfAttentionV1", x_.defined());
  const Tensor dz3 = dz.rank() == 3 ? dz : dz.unsqueeze(0);
  require_gradient("SelfAttentionV1", dz3, {x_.size(0), x_.size(1), W_value.value.size(1)});
  // z = attention(q, k, v)
  const AttentionGradient grad = attention_backward(dz3.unsqueeze(1), q_, k_, v_);
  Tensor dx;
  const auto back = [&](const Tensor& dy, Parameter& w) {
    // y = x · W
    const auto g = ref::project_backward(dy.select(1, 0), x_, w.value.transpose(0, 1), false);
    accumulate(w, g.weight.transpose(0, 1).contiguous());
    dx = dx.defined() ? ref::add(dx, g.x) : g.x;
  };
  back(grad.q, W_query);
  back(grad.k, W_key);
  back(grad.v, W_value);
  return {dz.rank() == 3 ? dx : dx.select(0, 0), {}};
}

std::vector<Parameter*> SelfAttentionV1::parameters() { return {&W_query, &W_key, &W_value}; }

}  // namespace attn
