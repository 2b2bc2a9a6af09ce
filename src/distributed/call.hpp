// A call that all ranks make together, after they have agreed on it.
#pragma once

#include <string>

#include "attn/distributed.hpp"

namespace attn::distributed {

// Which masks have one row that is every query's, on all ranks. A rank with one query may have it as one row, too.
struct SharedRows {
  bool keep = false, bias = false, dropout_keep = false;
};

struct Call {
  Transport& transport;
  AttentionOptions options;  // masks by rows with four dimensions; without offsets
  Scheme scheme;
  std::int64_t most_bytes;
  Problem problem;
  SharedRows shared = {};

  int rank() const { return transport.rank(); }
  int ranks() const { return transport.size(); }
  const Layout& queries() const { return problem.queries; }
  const Layout& keys() const { return problem.keys; }
  std::int64_t group() const { return problem.key_heads == 0 ? 1 : problem.query_heads / problem.key_heads; }
  // Parts are computed in this dtype before they are merged or added.
  DType wide() const { return problem.dtype == DType::f64 ? DType::f64 : DType::f32; }
  DType output_dtype() const { return options.output_dtype.value_or(problem.dtype); }
};

enum class Kind { forward, backward, decode };  // decode: all ranks give the same queries

// Throws the same Error on every rank where a rank's inputs do not fit, or ranks disagree. `check` throws Error where
// what else the rank has does not fit.
Call agree(Transport& transport, const Tensor& q, const Tensor& k, const Tensor& v, const Options& options, Kind kind,
           const std::function<void()>& check = {});

// Why the scheme cannot do this; empty where it can.
std::string refusal(Scheme scheme, const Problem& problem, const AttentionOptions& options);

AttentionResult gather_forward(const Call& call, const Tensor& q, const Tensor& k, const Tensor& v);
AttentionResult ring_forward(const Call& call, const Tensor& q, const Tensor& k, const Tensor& v);
AttentionResult ulysses_forward(const Call& call, const Tensor& q, const Tensor& k, const Tensor& v);

// The backward pass starts from these, by rows of this rank.
struct Incoming {
  Tensor d_output, q, k, v;
  AttentionResult forward;
};
// Gradients of sinks and relative_bias are this rank's part of the sum (float64), and so is that of a shared bias.
AttentionGradient gather_backward(const Call& call, const Incoming& in);
AttentionGradient ring_backward(const Call& call, const Incoming& in);
AttentionGradient ulysses_backward(const Call& call, const Incoming& in);

}  // namespace attn::distributed
