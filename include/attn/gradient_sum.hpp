// The gradients of a batch that is computed in groups of sequences, by one rank or several. Their sum has the same bits
// however the groups are shared out, since it is made in one fixed tree.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attn/distributed.hpp"
#include "attn/modules.hpp"

namespace attn::distributed {

class WeightShards;

struct GradientSumOptions {
  std::int64_t groups = 1;  // of the whole batch, a multiple of the data-parallel ranks
  // Each group's sequences are cut among so many ranks that follow each other; ranks are a multiple of it.
  int sequence_ranks = 1;
  bool sharded = false;                         // a rank gets the sums of its own part of the parameters alone
  std::int64_t bucket = std::int64_t{1} << 20;  // elements that are sent together, at least
  // Weights that are divided, too (attn/weight_shards.hpp): the sums are sharded by its parts, each of which is sent by
  // itself, and its memory is given back while the backward pass goes on. It must outlive the sum.
  WeightShards* weights = nullptr;
};

// A step: take() the gradients of each of this rank's groups, then finish(). With ranks they travel while the backward
// pass goes on. Every rank makes the same calls. The parameters must outlive the object and keep their shapes; float32.
//
// The tree adds neighbours: groups 0 and 1, 2 and 3, …; then the pairs, and so on; one that is left over joins later.
class GradientSum {
 public:
  // Without ranks (null) one process has all groups. Throws Error (argument) for groups that ranks cannot share evenly.
  GradientSum(Transport* ranks, std::vector<Parameter*> parameters, const GradientSumOptions& options = {});
  ~GradientSum();
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;

  std::int64_t groups() const noexcept;
  Run own_groups() const noexcept;  // this rank's, whose backward passes run in this order

  // Takes gradients of the group whose backward pass has finished them, and leaves none behind. All parameters of a
  // group have to be taken once, in any parts and order, before one of the next group. This may be `GradientsReady`.
  void take(std::span<Parameter* const> ready);
  // Waits for the other ranks. Afterwards each parameter's grad is the sum over all groups; with shards, own()'s.
  void finish();

  // Returns what this rank's optimizer steps: the parameters, or with shards its runs of their elements, as (1, n)
  // of matrices and (n) of vectors. Their values are views, of WeightShards' memory where there are such. Empty on a
  // rank that has none.
  const std::vector<Parameter*>& own() const noexcept;
  // Gives all ranks the values that each has changed of its own shards. It does nothing where weights are divided.
  void share_values();
  // √Σ grad² over all elements after finish(), the same bits on any ranks, with shards or without.
  double norm() const;
  // Puts whole tensors together on rank 0: own[i] belongs to own()[i]; the result to the parameters. Others get none.
  std::vector<Tensor> gathered(const std::vector<Tensor>& own) const;
  // The parts of `whole`, a tensor for each parameter, that belong to own().
  std::vector<Tensor> own_parts(const std::vector<Tensor>& whole) const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

// The ranks' numbers, those of rank 0 first. Without ranks, `own`.
std::vector<double> all_gather(Transport* ranks, std::span<const double> own);

}  // namespace attn::distributed
