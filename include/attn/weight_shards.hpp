// Weights that are divided among ranks: each keeps a part of them between uses, and a module gets its whole weights
// just before it computes, forward and backward, as in ZeRO's third stage (Rajbhandari et al. 2020, arXiv 1910.02054)
// and fully sharded data parallel (Zhao et al. 2023, arXiv 2304.11277).
#pragma once

#include <memory>
#include <optional>

#include "attn/distributed.hpp"
#include "attn/modules.hpp"
#include "attn/weights.hpp"

namespace attn::distributed {

// A rank keeps one run of elements of each part of a model, such as a block. The other ranks send theirs when the
// model takes the part, while it computes the one before, as far as the transport sends then; what came is given back
// when the model releases it. All ranks must give their models the same calls, in one order.
//
//   const auto shards = std::make_shared<WeightShards>(&ranks, model.weight_parts());
//   model.set_weights(shards);
//   GradientSum sum(&ranks, model.parameters(), {.groups = …, .weights = shards.get()});
//   AdamW adamw(sum.own());
//
// A rank that is ahead waits in take() for the others. One that throws by itself is out of step: it leaves them
// waiting, or gives them weights of another part if it goes on. An optimizer steps between a backward pass and the next
// forward pass, when no weights are under way.
class WeightShards : public WeightSource {
 public:
  // All ranks give the same float32 values, of which each copies its part; the parameters' values are absent() from
  // then on. Without ranks (null), or with one, nothing is divided. The parameters must outlive this object, and so
  // must the ranks. Throws Error (dtype) for other weights, and (argument) for what is divided already.
  WeightShards(Transport* ranks, WeightParts parts);
  ~WeightShards() override;
  WeightShards(const WeightShards&) = delete;
  WeightShards& operator=(const WeightShards&) = delete;

  void begin(std::size_t part) override;
  void take(std::size_t part) override;
  void release(std::size_t part) noexcept override;

  // Gives the model on this rank, or on rank `on` alone, all of its weights, as to save them or to generate, until
  // divide(). All ranks call both, with the same rank, and the model computes nothing in between but on those that have
  // them. What is changed of them meanwhile is lost: load weights before they are divided. Throws Error (argument) for
  // a rank that is not there; begin(), take() and this throw Error (data) after a call of theirs that failed.
  void gather(std::optional<int> on = {});
  void divide() noexcept;

  const WeightParts& parts() const noexcept;
  bool divided() const noexcept;  // among several ranks
  // The run of a part's elements that this rank keeps, the part's last parameter first. An optimizer changes it here.
  const Tensor& own(std::size_t part) const;
  std::size_t bytes() const noexcept;  // that this rank keeps of all parts

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace attn::distributed
