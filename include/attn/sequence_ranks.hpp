// Training on sequences that are cut among ranks: each computes its own tokens through the whole model, and attention
// goes over all of them (attn/distributed.hpp).
#pragma once

#include "attn/distributed.hpp"
#include "attn/sequence.hpp"

namespace attn::distributed {

// This rank's part of each sequence, which set_sequence() of a model takes. All ranks of the transport must give their
// models the same calls, so with the same sizes and in one order; it must outlive this object. A rank that throws by
// itself, for an id of its own part that is out of range for example, leaves the others waiting: check whole texts
// first.
//
// A rank's loss is the mean over its own targets. The mean over all is the sum of the ranks' losses, each times
// share(), and backward(share()) leaves gradients whose sums over the ranks are those of that mean; where targets are
// ignored, multiply by the share of those that are not. GradientSum adds them up, with these ranks as sequence_ranks.
class SequenceRanks : public SequencePart {
 public:
  // Throws Error (argument) for a layout of other ranks, or one that leaves a rank without tokens.
  SequenceRanks(Transport& ranks, Layout layout, Scheme scheme = Scheme::automatic);

  // Copies this rank's tokens of ids or targets (…, tokens).
  Tensor take(const Tensor& whole) const;
  // Returns this rank's share of all tokens.
  double share() const noexcept;

  // `automatic` chooses the scheme by the sizes alone, so that a run has the same bits when it is repeated. Throws
  // Error (argument) for an additive mask, and as distributed::attention() does.
  AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v,
                            const AttentionOptions& options) override;
  // The gradients of sinks and of a relative bias are on rank 0, and zeros on the others.
  AttentionGradient attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                       const AttentionOptions& options, const AttentionResult& forward) override;

 private:
  Options options_of(const AttentionOptions& options) const;

  Transport& ranks_;
  Layout layout_;
  Scheme scheme_;
};

}  // namespace attn::distributed
