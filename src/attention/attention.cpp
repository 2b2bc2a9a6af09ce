// The operator: validate once, then the fused kernels, or the composed steps where they are asked for.
#include "attn/attention.hpp"

#include <algorithm>

#include "attention/composed.hpp"
#include "attention/fused.hpp"
#include "attn/error.hpp"
#include "attn/steps.hpp"

namespace attn {
namespace {

// Whether the trace looks at what the kernels do not hold: a step from queries to dropped weights.
bool looks_inside(const Trace& trace) {
  const auto of_operator = [](const Step& step) { return step.kind != StepKind::tokens && step.name != "context"; };
  return std::ranges::any_of(known_steps(),
                             [&](const Step& step) { return of_operator(step) && trace.watches(step.name); });
}

}  // namespace

AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                          Trace* trace) {
  const Sizes p = validate(q, k, v, options);
  if (!can_fuse(q, options) || (trace && looks_inside(*trace))) {
    return composed_attention(q, k, v, p, options, trace);
  }
  AttentionResult result = fused_attention(q, k, v, p, options);
  if (trace) result.output = trace->pass("context", result.output);
  return result;
}

Tensor with_rest(const Tensor& lse, const Tensor& rest) {
  const Tensor sum = lse.to(DType::f64);
  for (std::int64_t i = 0; i < sum.numel(); ++i) sum.data<double>()[i] += static_cast<double>(rest.data<float>()[i]);
  return sum;
}

AttentionResult attention_to_merge(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const Sizes p = validate(q, k, v, options);
  if (!can_fuse(q, options)) {
    AttentionResult result = composed_attention(q, k, v, p, options, nullptr);
    result.lse = result.lse.to(DType::f64);
    return result;
  }
  const Tensor rest = Tensor::zeros({p.batch, p.hq, p.tq});
  AttentionResult result = fused_attention(q, k, v, p, options, rest);
  result.lse = with_rest(result.lse, rest);
  return result;
}

namespace {

void check_gradient(const Tensor& d_output, const Sizes& p, const AttentionOptions& options) {
  if (options.score_function && !options.score_function.backward) {
    throw Error(Error::Kind::argument, "attention_backward", "a score function with its gradient", "one without",
                "give it the derivative, too");
  }
  if (!(d_output.shape() == p.output_shape())) {
    throw Error(Error::Kind::shape, "attention_backward", "d_output (b, hq, tq, dv) = " + p.output_shape().str(),
                d_output.shape().str());
  }
  if (!is_floating(d_output.dtype())) {
    throw Error(Error::Kind::dtype, "attention_backward", "d_output of a floating dtype", name(d_output.dtype()));
  }
}

void check_forward(const AttentionResult& forward, const Tensor& q, const Sizes& p) {
  const Shape lse{p.batch, p.hq, p.tq};
  const DType dtype = forward.output.dtype();  // merged results of 16-bit inputs may be of float32
  if (forward.output.shape() == p.output_shape() && forward.lse.shape() == lse &&
      (dtype == q.dtype() || (dtype == DType::f32 && size_of(q.dtype()) == 2)) && is_floating(forward.lse.dtype()))
    return;
  throw Error(Error::Kind::shape, "attention_backward",
              "attention()'s result for the same inputs: output " + p.output_shape().str() + " and lse " + lse.str(),
              forward.output.shape().str() + " and " + forward.lse.shape().str());
}

}  // namespace

AttentionGradient attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                     const AttentionOptions& options) {
  const Sizes p = validate(q, k, v, options);
  check_gradient(d_output, p, options);
  if (!can_fuse(q, options)) return composed_attention_backward(d_output, q, k, v, p, options);
  return fused_attention_backward(d_output, q, k, v, p, options, fused_attention(q, k, v, p, options));
}

AttentionGradient attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                     const AttentionOptions& options, const AttentionResult& forward) {
  const Sizes p = validate(q, k, v, options);
  check_gradient(d_output, p, options);
  check_forward(forward, q, p);
  if (!can_fuse(q, options)) return composed_attention_backward(d_output, q, k, v, p, options, &forward);
  return fused_attention_backward(d_output, q, k, v, p, options, forward);
}

}  // namespace attn
