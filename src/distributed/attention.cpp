// The call that all ranks make: they agree on it, and one of the schemes computes it.
#include "attn/error.hpp"
#include "distributed/exchange.hpp"

namespace attn::distributed {
namespace {

void check_incoming(const Tensor& d_output, const Tensor& q, const Tensor& v, const AttentionResult& forward) {
  const bool defined =
      q.rank() == 4 && v.rank() == 4 && d_output.defined() && forward.output.defined() && forward.lse.defined();
  const Shape rows = defined ? Shape{q.size(0), q.size(1), q.size(2), v.size(3)} : Shape{};
  if (defined && d_output.shape() == rows && forward.output.shape() == rows &&
      forward.lse.shape() == Shape{rows[0], rows[1], rows[2]} && is_floating(d_output.dtype()))
    return;
  throw Error(Error::Kind::shape, "distributed attention",
              "d_output and attention()'s result for this rank's rows " + rows.str(),
              d_output.shape().str() + " and " + forward.output.shape().str());
}

Tensor in_own_form(const Tensor& sum, const Tensor& like) {
  return sum.defined() ? sum.contiguous().view(like.shape()).to(like.dtype()) : sum;
}

}  // namespace

AttentionResult attention(Transport& transport, const Tensor& q, const Tensor& k, const Tensor& v,
                          const Options& options) {
  const Call call = agree(transport, q, k, v, options, Kind::forward);
  switch (call.scheme) {
    case Scheme::gather:
      return gather_forward(call, q, k, v);
    case Scheme::ulysses:
      return ulysses_forward(call, q, k, v);
    default:
      return ring_forward(call, q, k, v);
  }
}

AttentionGradient attention_backward(Transport& transport, const Tensor& d_output, const Tensor& q, const Tensor& k,
                                     const Tensor& v, const Options& options, const AttentionResult& forward) {
  const Call call =
      agree(transport, q, k, v, options, Kind::backward, [&] { check_incoming(d_output, q, v, forward); });
  const Incoming in{d_output.to(q.dtype()), q, k, v, forward};
  AttentionGradient grad = call.scheme == Scheme::gather    ? gather_backward(call, in)
                           : call.scheme == Scheme::ulysses ? ulysses_backward(call, in)
                                                            : ring_backward(call, in);
  const AttentionOptions& o = options.attention;
  if (grad.bias.defined() && call.shared.bias) grad.bias = sum_over_ranks(transport, grad.bias);
  grad.bias = in_own_form(grad.bias, o.mask.bias);
  grad.sinks = in_own_form(sum_over_ranks(transport, grad.sinks), o.sinks);
  grad.relative_bias = in_own_form(sum_over_ranks(transport, grad.relative_bias), o.relative_bias.table);
  return grad;
}

}  // namespace attn::distributed
