// Sequences that are cut among processes, as a module sees them: it has some of the tokens, which it computes alone,
// and attention reaches the others. attn/sequence_ranks.hpp makes this of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "attn/attention.hpp"

namespace attn {

// A process's part of each sequence. Modules that have one take and give its rows, in the order of the positions.
class SequencePart {
 public:
  // The tokens of a whole sequence, and which of them these rows are. Throws Error (argument) unless there is at least
  // one position, and each is from 0 to tokens - 1.
  SequencePart(std::int64_t tokens, std::vector<std::int64_t> positions);
  virtual ~SequencePart() = default;
  SequencePart(const SequencePart&) = delete;
  SequencePart& operator=(const SequencePart&) = delete;

  std::int64_t tokens() const noexcept { return tokens_; }
  std::int64_t rows() const noexcept { return positions_.numel(); }
  const Tensor& positions() const noexcept { return positions_; }  // int64 (rows)

  // attention() and attention_backward() of the whole sequence, whose queries and keys are cut alike: q, k, v,
  // d_output and tensors with a row for each query have this part's rows, and so has the result. All parts make the
  // same calls in one order. The gradients of sinks and of a relative bias are to be added up over the parts.
  virtual AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options) = 0;
  virtual AttentionGradient attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k,
                                               const Tensor& v, const AttentionOptions& options,
                                               const AttentionResult& forward) = 0;

 private:
  std::int64_t tokens_;
  Tensor positions_;
};

}  // namespace attn
