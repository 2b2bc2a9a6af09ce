// Attention over a sequence that is cut among ranks: processes on one machine or several (attn/mpi.hpp), or threads of
// one process. docs/distributed.md says which scheme is for what.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/attention.hpp"

namespace attn::distributed {

// A message under way. Its memory must stay until wait() returns. Dropping a request gives it up.
class Request {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;
  };

  Request() = default;  // of a message that has arrived
  explicit Request(std::unique_ptr<State> state) : state_(std::move(state)) {}

  // Throws Error (data) where the other rank has ended or is out of reach.
  void wait() {
    if (state_) state_->wait();
    state_.reset();
  }

 private:
  std::unique_ptr<State> state_;
};

using Bytes = std::span<const std::byte>;
using Room = std::span<std::byte>;

// How ranks reach each other. An object belongs to one rank, and one thread at a time may use it.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  // Messages of one tag, from 0 to 9, from one rank to another are received in the order in which they were sent, and
  // are to be waited for in that order. Sizes must agree. Collective calls use tag 0.
  virtual Request send(int to, Bytes message, int tag) = 0;
  virtual Request receive(int from, Room message, int tag) = 0;
  // Gives messages under way the chance to go on, where nothing else does so while a rank computes.
  virtual void progress() {}

  // Collective calls: every rank makes them, in one order.
  void barrier();
  // from[r] is what rank r gave as `own`.
  void all_gather(Bytes own, std::span<const Room> from);
  // to[r] goes to rank r, and from[r] is what rank r gave for this one.
  void all_to_all(std::span<const Bytes> to, std::span<const Room> from);
  // `own`, this rank's share, becomes the sum of all ranks' numbers for it, added in the order of the ranks. `all` is
  // every rank's share, one after the other, shares[r] numbers of rank r.
  void reduce_scatter(std::span<const double> all, std::span<const std::int64_t> shares, std::span<double> own);
  // Texts of any length.
  std::vector<std::string> all_gather(const std::string& own);
};

// Runs `body` for `ranks` ranks, each a thread of this process, and returns when all have ended. Where one throws, the
// others' calls throw, too, and what it threw is thrown here.
void run_threads(int ranks, const std::function<void(Transport&)>& body);

// Positions [first, last) of a sequence.
struct Run {
  std::int64_t first = 0, last = 0;

  std::int64_t length() const noexcept { return last - first; }
  bool empty() const noexcept { return last <= first; }
  friend bool operator==(const Run&, const Run&) = default;
};

// Which rows of a sequence each rank holds: runs of positions, which are the rows of its tensors in that order.
class Layout {
 public:
  Layout() = default;  // none
  // runs[r] are rank r's. Throws Error (argument) unless they hold every position from 0 on once.
  explicit Layout(std::vector<std::vector<Run>> runs);

  // One run after the other; any lengths.
  static Layout contiguous(std::span<const std::int64_t> lengths);
  // The same in shares as even as they can be.
  static Layout even(std::int64_t tokens, int ranks);
  // Rank r has runs r and 2 · ranks - 1 - r of 2 · ranks even ones: the same work for all under a causal mask.
  static Layout zigzag(std::int64_t tokens, int ranks);

  bool defined() const noexcept { return !runs_.empty(); }
  int ranks() const noexcept { return static_cast<int>(runs_.size()); }
  std::int64_t tokens() const noexcept { return tokens_; }
  const std::vector<Run>& runs(int rank) const { return runs_.at(static_cast<std::size_t>(rank)); }
  std::int64_t rows(int rank) const;

  // A rank's rows of dimension `dim` of a whole tensor, copied.
  Tensor take(const Tensor& whole, std::int64_t dim, int rank) const;
  // Copies a rank's rows to their places in a whole tensor.
  void put(const Tensor& rows, const Tensor& whole, std::int64_t dim, int rank) const;

 private:
  std::vector<std::vector<Run>> runs_;
  std::int64_t tokens_ = 0;
};

enum class Scheme {
  automatic,  // by estimate()
  ring,       // keys and values travel while others are computed; results merged by their log-sum-exps
  gather,     // every rank gets all keys and values, some heads at a time; the bits of one process
  ulysses     // from rows of all heads to all rows of some heads, and back; the bits of one process
};
std::string_view name(Scheme scheme) noexcept;
// "auto", "ring", "gather" or "ulysses". Throws Error (argument) for another name.
Scheme parse_scheme(std::string_view text);

// What a machine does, for estimate().
struct Costs {
  double bytes_per_second = 1e9, latency = 3e-5, flops_per_second = 5e10;  // of one rank
};
// Measured between neighbours and on a small problem, in some milliseconds; every rank gets the slowest's.
Costs measure(Transport& transport, DType dtype, std::int64_t head_dim);

struct Options {
  // Of the whole sequence. Tensors by rows (keep, bias, dropout_keep) have this rank's rows and all columns; one with a
  // single row, as everything else, is the same on all ranks. Positions come from the layouts: offsets are refused.
  AttentionOptions attention = {};
  Scheme scheme = Scheme::automatic;
  // Without one: contiguous, by the lengths that the ranks have. Of the keys: the queries' where lengths are alike.
  Layout queries = {}, keys = {};
  Costs costs = {};                                 // by which `automatic` chooses
  std::int64_t most_bytes = std::int64_t{1} << 28;  // of keys and values that gather holds at a time
};

// What a call costs a rank, by the scheme: the busiest rank's numbers.
struct Estimate {
  Scheme scheme = Scheme::ring;
  double bytes = 0, messages = 0, flops = 0, seconds = 0;
  std::string reason;  // in words
};

// Sizes of a whole problem, all ranks together.
struct Problem {
  std::int64_t batch = 1, query_heads = 1, key_heads = 1, depth = 1, value_depth = 1;
  DType dtype = DType::f32;
  Layout queries, keys;
};

// Of the forward pass. Throws Error (argument) where the scheme cannot do it; `automatic` is the one of least seconds.
Estimate estimate(const Problem& problem, const Options& options);

// attention() of a sequence cut among ranks: q, k and v are this rank's rows, and so is the result. Throws Error on
// every rank where inputs do not fit, ranks disagree, or the scheme cannot do what is asked for (it is named).
AttentionResult attention(Transport& transport, const Tensor& q, const Tensor& k, const Tensor& v,
                          const Options& options = {});

// Its gradients, of this rank's rows. `forward` is what attention() gave. Gradients of what ranks share (sinks,
// relative_bias, a bias with one row) are sums over all ranks.
AttentionGradient attention_backward(Transport& transport, const Tensor& d_output, const Tensor& q, const Tensor& k,
                                     const Tensor& v, const Options& options, const AttentionResult& forward);

// A cache that is cut among ranks: all ranks give the same queries, and their own keys and values. Each gets the whole
// result. Queries stand at query_offset, or, with Align::bottom_right, at the end of the keys. Options::scheme is not
// asked.
AttentionResult decode(Transport& transport, const Tensor& q, const Tensor& k, const Tensor& v,
                       const Options& options = {});

}  // namespace attn::distributed
