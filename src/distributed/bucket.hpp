// Gradients that travel together: those of some parameters, one after the other as one row of elements.
#pragma once

#include "attn/modules.hpp"
#include "distributed/tree.hpp"

namespace attn::distributed {

// A part of a parameter within a bucket.
struct Piece {
  std::size_t parameter = 0;  // of the bucket
  std::int64_t first = 0, count = 0;

  friend bool operator==(const Piece&, const Piece&) = default;
};

// Who takes part: ranks, of which `sequence` ones that follow each other share groups.
struct Ranks {
  Transport* transport = nullptr;  // null: one process
  std::int64_t groups = 1;
  int sequence = 1;

  int size() const { return transport ? transport->size() : 1; }
  int own() const { return transport ? transport->rank() : 0; }
  Run groups_of(int rank) const;
};

class Bucket {
 public:
  Bucket(std::vector<Parameter*> parameters, const Ranks& ranks);

  void take(std::int64_t group);  // the gradients of one group
  // Begins to send what this rank's groups gave. All ranks do so in one order of buckets.
  void send();
  // Waits for what the other ranks send, and adds it. Afterwards share() is there.
  void receive();
  // Sends this rank's share of the sum to all, which receive_whole() waits for.
  void send_share();
  void receive_whole();

  // The sum of this rank's run of elements, of all elements on one process: contiguous rows.
  const Tensor& share() const noexcept { return share_; }
  const std::vector<Parameter*>& parameters() const noexcept { return parameters_; }
  // The pieces of a rank's run of elements, of at most `longest` elements each.
  std::vector<Piece> pieces(int rank, std::int64_t longest) const;
  Run elements_of(int rank) const { return {bounds_[at(rank)], bounds_[at(rank) + 1]}; }
  std::int64_t start(std::size_t parameter) const { return starts_[parameter]; }

  static constexpr std::int64_t kUnit = 4096;  // elements: runs of a parameter that are never divided

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  Tensor sum_of_parts();

  std::vector<Parameter*> parameters_;
  Ranks ranks_;
  std::vector<std::int64_t> starts_, bounds_;  // of parameters, and at the end; of ranks
  TreeSum<std::vector<Tensor>> own_;
  std::vector<std::pair<Run, Tensor>> sent_;                   // this rank's nodes as rows
  std::vector<std::vector<std::pair<Run, Tensor>>> received_;  // by rank
  Tensor share_, whole_;
  std::vector<Request> arriving_, leaving_;  // last: they are given up before the memory that they read and write
};

}  // namespace attn::distributed
