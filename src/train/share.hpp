// The tokens of each text that this process computes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attn/sequence_ranks.hpp"
#include "attn/train.hpp"

namespace attn {

class TextShare {
 public:
  TextShare(const TrainRanks& ranks, std::int64_t context);

  std::shared_ptr<SequencePart> part() const { return part_; }  // for the model; null where texts are whole
  TrainBatch of(const TrainBatch& texts) const;
  double of_tokens() const { return part_ ? part_->share() : 1; }
  // Mean losses of texts, or groups of them: from those over this process's tokens to those over all tokens, of all
  // texts in their order.
  std::vector<double> gathered(std::vector<double> own) const;

 private:
  distributed::Transport* all_;
  std::unique_ptr<distributed::Transport> sharing_;  // the ranks that have the same texts
  std::shared_ptr<distributed::SequenceRanks> part_;
};

}  // namespace attn
