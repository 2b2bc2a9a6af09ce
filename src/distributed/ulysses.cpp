// From rows of all heads to all rows of some heads, and back (Jacobs et al. 2023, "DeepSpeed Ulysses"). Ranks past the
// number of key heads have none, and wait.
#include "distributed/exchange.hpp"

namespace attn::distributed {
namespace {

class Ulysses {
 public:
  explicit Ulysses(const Call& call) : call_(call) {
    for (int r = 0; r < call.ranks(); ++r) {
      key_.push_back(share_of_heads(call.problem.key_heads, call.ranks(), r));
      query_.push_back({key_.back().first * call.group(), key_.back().last * call.group()});
    }
    options_ = call.options;
    options_.mask.keep = options_.mask.bias = options_.dropout_keep = {};
    options_ = of_heads(call.problem, options_, own());
    options_.mask.keep = whole(call.options.mask.keep, call.shared.keep);
    options_.mask.bias = whole(call.options.mask.bias, call.shared.bias);
    options_.dropout_keep = whole(call.options.dropout_keep, call.shared.dropout_keep);
  }

  const AttentionOptions& options() const { return options_; }
  Heads own() const { return key_[static_cast<std::size_t>(call_.rank())]; }
  Heads own_queries() const { return query_[static_cast<std::size_t>(call_.rank())]; }
  bool idle() const { return own().count() == 0; }

  Tensor queries(const Tensor& rows) const { return rows_to_heads(call_.transport, call_.queries(), rows, query_); }
  Tensor keys(const Tensor& rows) const { return rows_to_heads(call_.transport, call_.keys(), rows, key_); }
  Tensor rows_of_queries(const Tensor& own) const {
    return heads_to_rows(call_.transport, call_.queries(), own, query_);
  }
  Tensor rows_of_keys(const Tensor& own) const { return heads_to_rows(call_.transport, call_.keys(), own, key_); }

  // A gradient by heads, among all heads: zeros elsewhere, for sums over ranks.
  Tensor among_heads(const Tensor& part, std::int64_t dim, const Shape& shape) const {
    const Tensor all = Tensor::zeros(shape, DType::f64);
    const Heads heads = own_queries();
    if (part.defined()) all.slice(dim, heads.first, heads.last).copy_from(part);
    return all;
  }

  // Returns the gradient of a bias, whose rows are this rank's unless it is shared.
  Tensor bias_gradient(const Tensor& part) const {
    const Tensor& bias = call_.options.mask.bias;
    Shape shape = bias.shape();
    if (call_.shared.bias) {
      if (bias.size(1) != 1) return among_heads(part, 1, shape);
      return part.defined() ? part.to(DType::f64) : Tensor::zeros(shape, DType::f64);
    }
    if (bias.size(1) != 1)
      return rows_of_queries(idle() ? Tensor::empty(options_.mask.bias.shape(), bias.dtype()) : part);
    shape[2] = call_.queries().tokens();
    const Tensor sum = sum_over_ranks(call_.transport, idle() ? Tensor::zeros(shape, DType::f64) : part);
    return call_.queries().take(sum, 2, call_.rank());
  }

 private:
  // A mask of all queries and this rank's heads.
  Tensor whole(const Tensor& t, bool shared) const {
    if (!t.defined()) return t;
    if (shared) return mask_heads(call_.problem, t, own());
    if (t.size(1) == 1) return whole_rows(call_.transport, call_.queries(), t);
    return rows_to_heads(call_.transport, call_.queries(), t, query_);
  }

  const Call& call_;
  std::vector<Heads> key_, query_;
  AttentionOptions options_;
};

}  // namespace

AttentionResult ulysses_forward(const Call& call, const Tensor& q, const Tensor& k, const Tensor& v) {
  const Ulysses u(call);
  const Tensor all_q = u.queries(q), all_k = u.keys(k), all_v = u.keys(v);
  AttentionResult own{Tensor::empty({q.size(0), 0, all_q.size(2), v.size(3)}, call.output_dtype()),
                      Tensor::empty({q.size(0), 0, all_q.size(2)}, call.wide())};
  if (!u.idle()) own = attn::attention(all_q, all_k, all_v, u.options());
  return {u.rows_of_queries(own.output), u.rows_of_queries(own.lse)};
}

AttentionGradient ulysses_backward(const Call& call, const Incoming& in) {
  const Ulysses u(call);
  const Tensor g = u.queries(in.d_output), q = u.queries(in.q), k = u.keys(in.k), v = u.keys(in.v);
  const AttentionResult forward{u.queries(in.forward.output), u.queries(in.forward.lse)};
  AttentionGradient own{Tensor::empty(q.shape(), call.output_dtype()), Tensor::empty(k.shape(), call.output_dtype()),
                        Tensor::empty(v.shape(), call.output_dtype())};
  if (!u.idle()) own = attn::attention_backward(g, q, k, v, u.options(), forward);
  AttentionGradient grad{u.rows_of_queries(own.q), u.rows_of_keys(own.k), u.rows_of_keys(own.v)};
  if (call.options.mask.bias.defined()) grad.bias = u.bias_gradient(own.bias);
  if (call.options.sinks.defined()) grad.sinks = u.among_heads(own.sinks, 0, call.options.sinks.shape());
  const Tensor& table = call.options.relative_bias.table;
  if (table.defined()) grad.relative_bias = u.among_heads(own.relative_bias, 1, table.shape());
  return grad;
}

}  // namespace attn::distributed
