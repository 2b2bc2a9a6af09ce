// The processes that train together: which texts of a batch each has, and which tokens of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attn/sequence_ranks.hpp"
#include "train/text.hpp"

namespace attn::tool {

// What each rank keeps its own part of alone.
enum class Sharding { none, state, weights };  // the optimizer's state; that and the weights

// All of them make the same calls. Ranks that follow each other share texts, `sequence` of them each.
struct TrainRanks {
  distributed::Transport* transport = nullptr;  // null: one process
  Sharding sharding = Sharding::none;
  int sequence = 1;
  distributed::Scheme scheme = distributed::Scheme::automatic;  // of attention over those that share texts

  int size() const { return transport ? transport->size() : 1; }
  int rank() const { return transport ? transport->rank() : 0; }
  int data() const { return size() / sequence; }
  int data_rank() const { return rank() / sequence; }
  bool first() const { return rank() == 0; }  // the one that prints and writes
  std::string in_words() const;               // "8 ranks, data=4,sequence=2"
};

// Ranks by --ranks, --scheme, and --shard with --keep-weights. Throws Error (argument) for shares that are not those of
// these ranks.
TrainRanks train_ranks(distributed::Transport* transport, const std::string& shares, const std::string& scheme,
                       Sharding sharding);

// The tokens of each text that this process computes.
class TextShare {
 public:
  TextShare(const TrainRanks& ranks, std::int64_t context);

  std::shared_ptr<SequencePart> part() const { return part_; }  // for the model; null where texts are whole
  Batch of(const Batch& texts) const;
  double of_tokens() const { return part_ ? part_->share() : 1; }
  // Mean losses of texts, or groups of them: from those over this process's tokens to those over all tokens, of all
  // texts in their order.
  std::vector<double> gathered(std::vector<double> own) const;

 private:
  distributed::Transport* all_;
  std::unique_ptr<distributed::Transport> sharing_;  // the ranks that have the same texts
  std::shared_ptr<distributed::SequenceRanks> part_;
};

}  // namespace attn::tool
