// Gradients that travel together: those of some parameters, one after the other as one row of elements.
#pragma once

#include "distributed/division.hpp"
#include "distributed/tree.hpp"

namespace attn::distributed {

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
  const Division& division() const noexcept { return division_; }
  const std::vector<Parameter*>& parameters() const noexcept { return division_.parameters(); }
  // Where a piece of this rank's run begins in share().
  std::int64_t in_share(const Piece& piece) const {
    return division_.start(piece.parameter) + piece.first - division_.elements_of(ranks_.own()).first;
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  Tensor sum_of_parts();

  Division division_;
  Ranks ranks_;
  TreeSum<std::vector<Tensor>> own_;
  std::vector<std::pair<Run, Tensor>> sent_;                   // this rank's nodes as rows
  std::vector<std::vector<std::pair<Run, Tensor>>> received_;  // by rank
  Tensor share_, whole_;
  std::vector<Request> arriving_, leaving_;  // last: they are given up before the memory that they read and write
};

}  // namespace attn::distributed
