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
#include <type_traits>
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
  // Afterwards from[r] is what rank r gave as `own`.
  void all_gather(Bytes own, std::span<const Room> from);
  // Each rank's value. Its bytes are sent.
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  std::vector<T> all_values(const T& own) {
    std::vector<T> all(static_cast<std::size_t>(size()));
    std::vector<Room> from;
    for (T& one : all) from.push_back(std::as_writable_bytes(std::span(&one, 1)));
    all_gather(std::as_bytes(std::span(&own, 1)), from);
    return all;
  }
  // to[r] goes to rank r, and from[r] is what rank r gave for this one.
  void all_to_all(std::span<const Bytes> to, std::span<const Room> from);
  // Sums the ranks' numbers, in the order of the ranks, and gives each rank its share of the sums. `all` is what this
  // rank adds: shares[r] numbers for each rank r, one rank after the other. `own` becomes this rank's share.
  void reduce_scatter(std::span<const double> all, std::span<const std::int64_t> shares, std::span<double> own);
  // The same for texts. Their lengths may differ from rank to rank.
  std::vector<std::string> all_gather(const std::string& own);

 protected:
  Transport();  // memory of one call waits for the next, as while a module is trained

 private:
  std::shared_ptr<void> keeps_memory_;
};

// Runs `body` for `ranks` ranks, each a thread of this process, and returns when all have ended. Where one throws, the
// others' calls throw, too, and what it threw is thrown here.
void run_threads(int ranks, const std::function<void(Transport&)>& body);

// Some ranks of a transport as one of their own, whose rank i is `members[i]` of `all`. This rank is among them. The
// messages travel by `all`, which must outlive it, so that tags and the order of calls are common to both. Throws Error
// (argument) for members that are no ranks, are named twice, or lack this one.
std::unique_ptr<Transport> subgroup(Transport& all, std::vector<int> members);

// The positions of a sequence from first on, up to last and without it.
struct Run {
  std::int64_t first = 0, last = 0;

  std::int64_t length() const noexcept { return last - first; }
  bool empty() const noexcept { return last <= first; }
  friend bool operator==(const Run&, const Run&) = default;
};

// Which rows of a sequence each rank holds. A rank has runs of positions, and its tensors have them as rows in that
// order.
class Layout {
 public:
  Layout() = default;  // none
  // runs[r] are rank r's. Throws Error (argument) unless they hold every position from 0 on once.
  explicit Layout(std::vector<std::vector<Run>> runs);

  // Each rank has one run, and the runs follow each other. A length may be any number from 0 on.
  static Layout contiguous(std::span<const std::int64_t> lengths);
  // The same, with lengths that are as even as they can be.
  static Layout even(std::int64_t tokens, int ranks);
  // Rank r has runs r and 2 · ranks - 1 - r of 2 · ranks even ones. Under a causal mask all ranks then have the same
  // work.
  static Layout zigzag(std::int64_t tokens, int ranks);

  bool defined() const noexcept { return !runs_.empty(); }
  int ranks() const noexcept { return static_cast<int>(runs_.size()); }
  std::int64_t tokens() const noexcept { return tokens_; }
  const std::vector<Run>& runs(int rank) const;  // throws Error (argument) for a rank that is not there
  std::int64_t rows(int rank) const;

  // Copies a rank's rows from dimension `dim` of a whole tensor.
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

// How fast a machine is. estimate() reads this.
struct Costs {
  double bytes_per_second = 1e9, latency = 3e-5, flops_per_second = 5e10;  // of one rank
};
// Measures the machine between neighbours and on a small problem, which takes some milliseconds. Every rank gets the
// slowest rank's numbers.
Costs measure(Transport& transport, DType dtype, std::int64_t head_dim);

struct Options {
  // The options of the whole sequence. Tensors by rows (keep, bias, dropout_keep) have this rank's rows and all
  // columns. One with a single row is the same on all ranks, and so is everything else. Positions come from the
  // layouts, and offsets are refused.
  AttentionOptions attention = {};
  Scheme scheme = Scheme::automatic;
  // Without a layout the ranks' rows follow each other (contiguous). Keys without one have the queries', where the
  // lengths are alike.
  Layout queries = {}, keys = {};
  Costs costs = {};                                 // by which `automatic` chooses
  std::int64_t most_bytes = std::int64_t{1} << 28;  // of keys and values that gather holds at a time
  // Whether a call of attention_backward() follows: the same on all ranks, since it would wait for the others.
  bool with_gradient = false;
};

// An Estimate tells what a call by one scheme costs the busiest rank.
struct Estimate {
  Scheme scheme = Scheme::ring;
  double bytes = 0, messages = 0, flops = 0, seconds = 0;
  std::string reason;  // in words
};

// The sizes of a whole problem, of all ranks together.
struct Problem {
  std::int64_t batch = 1, query_heads = 1, key_heads = 1, depth = 1, value_depth = 1;
  DType dtype = DType::f32;
  Layout queries = {}, keys = {};
};

// Estimates the forward pass. For `automatic` it takes the scheme of least seconds. Throws Error (argument) where the
// scheme cannot do what is asked for.
Estimate estimate(const Problem& problem, const Options& options);

// attention() of a sequence that is cut among ranks. q, k and v are this rank's rows, and so is the result. Throws
// Error on every rank where inputs do not fit, where ranks disagree, or where the scheme cannot do what is asked for,
// which the message names.
AttentionResult attention(Transport& transport, const Tensor& q, const Tensor& k, const Tensor& v,
                          const Options& options = {});

// The gradients of this rank's rows. `forward` is what attention() gave. Gradients of what ranks share (sinks,
// relative_bias, a bias with one row) are sums over all ranks.
AttentionGradient attention_backward(Transport& transport, const Tensor& d_output, const Tensor& q, const Tensor& k,
                                     const Tensor& v, const Options& options, const AttentionResult& forward);

// Takes part in a call that the other ranks make, by an error in place of inputs: all ranks throw Error, which says why
// and names this rank. It is for a rank that finds out beforehand that it has nothing to give.
[[noreturn]] void refuse(Transport& transport, const std::string& why);

// Attention to a cache that is cut among ranks. All ranks give the same queries, and each its own keys and values. Each
// gets the whole result. Queries stand at query_offset, or, with Align::bottom_right, at the end of the keys. There is
// one way to compute this, so that Options::scheme has no effect.
AttentionResult decode(Transport& transport, const Tensor& q, const Tensor& k, const Tensor& v,
                       const Options& options = {});

}  // namespace attn::distributed
