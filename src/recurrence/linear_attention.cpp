// linear_attention(): validates once, then the kernels, or the reference for float64.
#include "attn/linear_attention.hpp"

#include <algorithm>

#include "attention/element.hpp"
#include "core/parallel.hpp"
#include "core/subnormals.hpp"
#include "kernels/targets.hpp"
#include "recurrence/by_tokens.hpp"
#include "recurrence/call.hpp"
#include "recurrence/plan.hpp"

namespace attn {
namespace {

using namespace recurrence;

Tensor unit_rows(const Tensor& t) { return t.stride(-1) == 1 || t.numel() == 0 ? t : t.contiguous(); }

// A call's tensors as the kernels and the reference read them.
struct Call {
  Call(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in, const LinearAttentionOptions& o, const Sizes& s)
      : sizes(s), options(o), q(unit_rows(q_in)), k(unit_rows(k_in)), v(unit_rows(v_in)), all(sequences(s, o)) {
    const auto take = [&](const Tensor& t) { return t.defined() ? t.to(state_dtype(q_in.dtype())).contiguous() : t; };
    decay = take(o.decay), beta = take(o.beta), initial = take(o.initial_state);
    for (const Sequence& each : all) tokens += static_cast<double>(each.tokens);
  }

  bool by_channel() const { return decay.defined() && decay.rank() == 4; }
  // Where a head's row of a token is, in a contiguous (b, heads, t, width).
  std::int64_t row(std::int64_t b, std::int64_t heads, std::int64_t h, std::int64_t t) const {
    return (b * heads + h) * sizes.tokens + t;
  }
  std::int64_t decay_width() const { return by_channel() ? sizes.d_k : 1; }
  std::int64_t state_at(const Sequence& each, std::int64_t head) const {
    return (each.state * sizes.hv + head) * sizes.d_k * sizes.d_v;
  }

  const Sizes& sizes;
  const LinearAttentionOptions& options;
  Tensor q, k, v, decay, beta, initial;
  std::vector<Sequence> all;
  double tokens = 0;
};

// --- by the kernels

kernels::TokenRows rows(const Tensor& t, const Sequence& each, std::int64_t head) {
  const std::int64_t at = each.batch * t.stride(0) + head * t.stride(1) + each.first * t.stride(2);
  return {static_cast<std::byte*>(t.raw()) + at * static_cast<std::int64_t>(size_of(t.dtype())), t.stride(2)};
}

kernels::Recurrence problem(const Call& call, const Sequence& each, const Read& read) {
  const Sizes& s = call.sizes;
  const std::int64_t at = call.row(each.batch, s.hv, read.state, each.first), width = call.decay_width();
  return {.tokens = each.tokens,
          .d_k = s.d_k,
          .d_v = s.d_v,
          .delta = call.options.rule == StateRule::delta,
          .scale = static_cast<float>(scale_of(call.options, s.d_k)),
          .element = element(call.q.dtype()),
          .q = rows(call.q, each, read.q),
          .k = rows(call.k, each, read.k),
          .v = rows(call.v, each, read.state),
          .decay = call.decay.defined() ? call.decay.data<float>() + at * width : nullptr,
          .decay_step = width,
          .by_channel = call.by_channel(),
          .beta = call.beta.defined() ? call.beta.data<float>() + at : nullptr,
          .beta_step = 1,
          .initial = call.initial.defined() ? call.initial.data<float>() + call.state_at(each, read.state) : nullptr};
}

kernels::Recurrence longest(const Call& call) {
  const auto shorter = [](const Sequence& a, const Sequence& b) { return a.tokens < b.tokens; };
  return problem(call, *std::max_element(call.all.begin(), call.all.end(), shorter), {0, 0, 0, 0});
}

void forward_by_kernels(const Call& call, const LinearAttentionResult& result) {
  const Sizes& s = call.sizes;
  const std::int64_t heads = static_cast<std::int64_t>(call.all.size()) * s.hv;
  const kernels::Recurrence sample = longest(call);
  const Plan plan = plan_forward(*kernels::active().recurrence, sample, heads,
                                 call.tokens * static_cast<double>(s.outputs()), planned_threads());
  const std::size_t scratch_bytes = plan.kernel->forward_scratch(sample, plan.task_panels);
  parallel_for(heads * plan.splits, scratch_bytes, plan.operations, [&](std::int64_t task, void* scratch) {
    const ZeroSubnormals zero(sample.element != kernels::Element::f16);
    const Sequence& each = call.all[static_cast<std::size_t>(task / plan.splits / s.hv)];
    const std::int64_t state = task / plan.splits % s.hv, first = task % plan.splits * plan.task_panels;
    float* final_state = result.state.data<float>() + call.state_at(each, state);
    for (const Read& read : reads_of(s, call.options.heads, state)) {
      const kernels::TokenRows to = rows(result.output, each, read.output);
      plan.kernel->forward(problem(call, each, read), {const_cast<void*>(to.data), to.step, final_state}, first,
                           std::min(plan.task_panels, plan.panels - first), scratch);
    }
  });
}

// Gradients of each output head, and of each state: heads that share a query or a key are added up afterwards.
struct Sums {
  explicit Sums(const Call& call) {
    const Sizes& s = call.sizes;
    const DType dtype = state_dtype(call.q.dtype());
    dq = Tensor::empty({s.batch, s.outputs(), s.tokens, s.d_k}, dtype);
    dk = Tensor::empty({s.batch, s.hv, s.tokens, s.d_k}, dtype);
    dv = Tensor::empty(call.v.shape(), dtype);
    if (dtype == DType::f64 || call.options.lengths.defined()) dq.fill(0), dk.fill(0), dv.fill(0);  // sums, and padding
    if (call.decay.defined()) d_decay = Tensor::zeros(call.decay.shape(), dtype);
    if (call.beta.defined()) d_beta = Tensor::zeros(call.beta.shape(), dtype);
    if (call.initial.defined()) d_initial = Tensor::zeros(call.initial.shape(), dtype);
  }

  Tensor dq, dk, dv, d_decay, d_beta, d_initial;
};

// Where each gradient of a read begins, as kernels::RecurrenceGradient and HeadGradient have them.
template <class T, class Gradient>
void point_into(const Call& call, const Sums& sums, const Sequence& each, const Read& read, Gradient& to) {
  const Sizes& s = call.sizes;
  const std::int64_t state = call.row(each.batch, s.hv, read.state, each.first);
  to.dq = sums.dq.data<T>() + call.row(each.batch, s.outputs(), read.output, each.first) * s.d_k;
  to.dk = sums.dk.data<T>() + state * s.d_k;
  to.dv = sums.dv.data<T>() + state * s.d_v;
  to.d_decay = sums.d_decay.defined() ? sums.d_decay.data<T>() + state * call.decay_width() : nullptr;
  to.d_beta = sums.d_beta.defined() ? sums.d_beta.data<T>() + state : nullptr;
  to.d_initial = sums.d_initial.defined() ? sums.d_initial.data<T>() + call.state_at(each, read.state) : nullptr;
}

// The gradient of the final state belongs to one read.
template <class T>
const T* state_gradient(const Call& call, const Tensor& d_state, const Sequence& each, const Read& read, bool first) {
  return first && d_state.defined() ? d_state.data<T>() + call.state_at(each, read.state) : nullptr;
}

void backward_by_kernels(const Call& call, const Tensor& d_output, const Tensor& d_state, const Sums& sums) {
  const Sizes& s = call.sizes;
  const kernels::Recurrence sample = longest(call);
  const Plan plan =
      plan_backward(*kernels::active().recurrence, sample, call.tokens * static_cast<double>(s.outputs()));
  const std::size_t scratch_bytes = plan.kernel->backward_scratch(sample, plan.segment);
  const std::int64_t heads = static_cast<std::int64_t>(call.all.size()) * s.hv;
  parallel_for(heads, scratch_bytes, plan.operations, [&](std::int64_t task, void* scratch) {
    const ZeroSubnormals zero(sample.element != kernels::Element::f16);
    const Sequence& each = call.all[static_cast<std::size_t>(task / s.hv)];
    bool first = true;
    for (const Read& read : reads_of(s, call.options.heads, task % s.hv)) {
      kernels::RecurrenceGradient gradient{};
      point_into<float>(call, sums, each, read, gradient);
      gradient.d_output = rows(d_output, each, read.output);
      gradient.d_state = state_gradient<float>(call, d_state, each, read, first);
      gradient.add = !first;
      const kernels::Recurrence p = problem(call, each, read);
      // A sequence is cut by its own length, so that it has the bits that it has alone.
      const std::int64_t segment = plan_backward(*plan.kernel, p, 0).segment;
      plan.kernel->backward(p, gradient, std::min(segment, plan.segment), scratch);
      first = false;
    }
  });
}

// --- by the reference

Tensor head_rows(const Tensor& t, const Sequence& each, std::int64_t head) {
  return t.select(0, each.batch).select(0, head).slice(0, each.first, each.first + each.tokens).contiguous();
}

// f(head, its sequence, the read, whether it is the state's first)
template <class F>
void each_head(const Call& call, const F& f) {
  const Sizes& s = call.sizes;
  for (const Sequence& each : call.all) {
    for (std::int64_t state = 0; state < s.hv; ++state) {
      bool first = true;
      for (const Read& read : reads_of(s, call.options.heads, state)) {
        const Tensor q = head_rows(call.q, each, read.q), k = head_rows(call.k, each, read.k);
        const Tensor v = head_rows(call.v, each, state);
        const std::int64_t at = call.row(each.batch, s.hv, state, each.first);
        const auto from = [](const Tensor& t, std::int64_t offset) {
          return t.defined() ? t.data<double>() + offset : nullptr;
        };
        const Head head{each.tokens,
                        s.d_k,
                        s.d_v,
                        call.options.rule == StateRule::delta,
                        scale_of(call.options, s.d_k),
                        q.data<double>(),
                        k.data<double>(),
                        v.data<double>(),
                        from(call.decay, at * call.decay_width()),
                        call.by_channel(),
                        from(call.beta, at),
                        from(call.initial, call.state_at(each, state))};
        f(head, each, read, first);
        first = false;
      }
    }
  }
}

void forward_by_reference(const Call& call, const LinearAttentionResult& result) {
  const Sizes& s = call.sizes;
  each_head(call, [&](const Head& head, const Sequence& each, const Read& read, bool) {
    const std::int64_t at = call.row(each.batch, s.outputs(), read.output, each.first) * s.d_v;
    forward_by_tokens(head, result.output.data<double>() + at,
                      result.state.data<double>() + call.state_at(each, read.state));
  });
}

void backward_by_reference(const Call& call, const Tensor& d_output, const Tensor& d_state, const Sums& sums) {
  each_head(call, [&](const Head& head, const Sequence& each, const Read& read, bool first) {
    const Tensor d_o = head_rows(d_output, each, read.output);
    HeadGradient gradient{};
    point_into<double>(call, sums, each, read, gradient);
    gradient.d_output = d_o.data<double>();
    gradient.d_state = state_gradient<double>(call, d_state, each, read, first);
    backward_by_tokens(head, gradient);
  });
}

// `sum` (b, many, t, width) by heads of which few share one, in the dtype of the input.
Tensor shared(const Tensor& sum, HeadMap map, std::int64_t few, DType dtype) {
  const std::int64_t many = sum.size(1), run = sum.size(2) * sum.size(3);
  if (many == few) return sum.to(dtype);
  const Tensor total = Tensor::zeros({sum.size(0), few, sum.size(2), sum.size(3)}, sum.dtype());
  const auto add = [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t at = 0; at < sum.size(0) * many; ++at) {
      const T* from = sum.data<T>() + at * run;
      T* to = total.data<T>() + (at / many * few + head_of(map, at % many, many, few)) * run;
      for (std::int64_t i = 0; i < run; ++i) to[i] += from[i];
    }
  };
  sum.dtype() == DType::f64 ? add(double{}) : add(float{});
  return total.to(dtype);
}

}  // namespace

LinearAttentionResult linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const LinearAttentionOptions& options) {
  const Sizes s = validate("linear_attention", q, k, v, options);
  const Call call(q, k, v, options, s);
  const DType dtype = state_dtype(q.dtype());
  LinearAttentionResult result{Tensor::empty(s.output_shape(), q.dtype()), Tensor::empty(s.state_shape(), dtype)};
  if (options.lengths.defined()) result.output.fill(0);  // padding
  if (s.states == 0) return result;
  dtype == DType::f64 ? forward_by_reference(call, result) : forward_by_kernels(call, result);
  return result;
}

LinearAttentionGradient linear_attention_backward(const Tensor& d_output, const Tensor& d_state, const Tensor& q,
                                                  const Tensor& k, const Tensor& v,
                                                  const LinearAttentionOptions& options) {
  const Sizes s = validate("linear_attention_backward", q, k, v, options);
  validate_gradient(d_output, d_state, s);
  const Call call(q, k, v, options, s);
  const Tensor d_o = unit_rows(d_output.to(q.dtype()));
  const Tensor d_s = d_state.defined() ? d_state.to(state_dtype(q.dtype())).contiguous() : d_state;
  const Sums sums(call);
  if (s.states != 0) {
    q.dtype() == DType::f64 ? backward_by_reference(call, d_o, d_s, sums) : backward_by_kernels(call, d_o, d_s, sums);
  }
  return {shared(sums.dq, options.heads, s.hq, q.dtype()),
          shared(sums.dk, options.heads, s.hk, q.dtype()),
          sums.dv.to(q.dtype()),
          sums.d_decay,
          sums.d_beta,
          sums.d_initial};
}

}  // namespace attn
