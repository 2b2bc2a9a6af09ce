// A scheme costs bytes, messages and products of the busiest rank, and the seconds that these make. docs/
// distributed.md writes the model down.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "attn/error.hpp"
#include "core/decimal.hpp"
#include "distributed/block.hpp"

namespace attn::distributed {
namespace {

// Pairs of a query and a key that it sees: by some queries of a run, which stand for all.
double pairs(const Problem& problem, const AttentionOptions& options, Run queries, Run keys) {
  constexpr std::int64_t samples = 16;
  const std::int64_t count = std::min(samples, queries.length());
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = queries.first + (2 * i + 1) * queries.length() / (2 * count);
    sum += static_cast<double>(seen(problem, options, {at, at + 1}, keys).length());
  }
  return count == 0 ? 0 : sum / static_cast<double>(count) * static_cast<double>(queries.length());
}

class Model {
 public:
  Model(const Problem& problem, const Options& options) : p_(problem), o_(options), ranks_(problem.queries.ranks()) {
    const int step = std::max(1, ranks_ / 16);  // of many ranks some
    for (int r = 0; r < ranks_; r += step) asked_.push_back(r);
    if (asked_.back() != ranks_ - 1) asked_.push_back(ranks_ - 1);
  }

  // Sends are hidden behind the products of the step before, as far as these take as long.
  Estimate ring() const {
    Estimate most{Scheme::ring, 0, 0, 0, 0, {}};
    for (const int user : asked_) {
      Estimate own{Scheme::ring, 0, 0, 0, 0, {}};
      double computing = products(user, user);
      own.flops = computing;
      for (int step = 1; step < ranks_; ++step) {
        const int owner = (user + ranks_ - step) % ranks_;
        const double sent = needed(owner, user) * key_bytes(), now = products(owner, user);
        const double sending = sent == 0 ? 0 : sent / o_.costs.bytes_per_second + o_.costs.latency;
        own.seconds += std::max(computing / o_.costs.flops_per_second, sending);
        own.bytes += sent, own.messages += sent == 0 ? 0 : 1, own.flops += now;
        computing = now;
      }
      own.seconds += computing / o_.costs.flops_per_second;
      most.seconds = std::max(most.seconds, own.seconds), most.flops = std::max(most.flops, own.flops);
      most.bytes = std::max(most.bytes, own.bytes), most.messages = std::max(most.messages, own.messages);
    }
    return most;
  }

  Estimate gather() const {
    Estimate e{Scheme::gather, 0, 0, 0, 0, {}};
    double rows = 0;
    for (int r = 0; r < ranks_; ++r) rows = std::max(rows, static_cast<double>(p_.keys.rows(r)));
    for (const int user : asked_) {
      double flops = 0;
      for (int owner = 0; owner < ranks_; ++owner) flops += products(owner, user);
      e.flops = std::max(e.flops, flops);
    }
    const double all = static_cast<double>(p_.keys.tokens()) * key_bytes(), held = static_cast<double>(o_.most_bytes);
    const double pieces = std::clamp(all / std::max(held, 1.0), 1.0, static_cast<double>(p_.key_heads));
    e.bytes = (ranks_ - 1) * rows * key_bytes(), e.messages = 2 * pieces * (ranks_ - 1);
    return timed(e);
  }

  Estimate ulysses() const {
    Estimate e{Scheme::ulysses, 0, 0, 0, 0, {}};
    double keys = 0, queries = 0, total = 0;
    for (int r = 0; r < ranks_; ++r) {
      keys = std::max(keys, static_cast<double>(p_.keys.rows(r)));
      queries = std::max(queries, static_cast<double>(p_.queries.rows(r)));
      for (const Run& run : p_.queries.runs(r)) total += pairs(p_, o_.attention, run, {0, p_.keys.tokens()});
    }
    const std::int64_t most = (p_.key_heads + ranks_ - 1) / ranks_;  // heads of the busiest
    e.flops = total * flops_of_pair() * static_cast<double>(most) / static_cast<double>(p_.key_heads);
    e.bytes = (ranks_ - 1.0) / ranks_ * (keys * key_bytes() + queries * query_bytes());
    e.messages = 5.0 * (ranks_ - 1);
    return timed(e);
  }

 private:
  Estimate timed(Estimate e) const {
    e.seconds =
        e.bytes / o_.costs.bytes_per_second + e.messages * o_.costs.latency + e.flops / o_.costs.flops_per_second;
    return e;
  }

  double flops_of_pair() const {
    return 2.0 * static_cast<double>(p_.batch * p_.query_heads * (p_.depth + p_.value_depth));
  }
  double key_bytes() const {
    return static_cast<double>(size_of(p_.dtype)) *
           static_cast<double>(p_.batch * p_.key_heads * (p_.depth + p_.value_depth));
  }
  // A query and its output, and the log-sum-exp.
  double query_bytes() const {
    const double row = static_cast<double>(size_of(p_.dtype)) * static_cast<double>(p_.depth + p_.value_depth) + 4;
    return row * static_cast<double>(p_.batch * p_.query_heads);
  }

  double products(int owner, int user) const {
    double sum = 0;
    for (const Run& queries : p_.queries.runs(user)) {
      for (const Run& keys : p_.keys.runs(owner)) sum += pairs(p_, o_.attention, queries, keys);
    }
    return sum * flops_of_pair();
  }

  // Rows that are sent: one hull a run, as shards.cpp has it.
  double needed(int owner, int user) const {
    std::int64_t rows = 0;
    for (const Run& keys : p_.keys.runs(owner)) {
      Run hull{keys.last, keys.first};
      for (const Run& queries : p_.queries.runs(user)) {
        const Run some = seen(p_, o_.attention, queries, keys);
        if (!some.empty()) hull = {std::min(hull.first, some.first), std::max(hull.last, some.last)};
      }
      rows += std::max<std::int64_t>(hull.length(), 0);
    }
    return static_cast<double>(rows);
  }

  const Problem& p_;
  const Options& o_;
  int ranks_;
  std::vector<int> asked_;
};

std::string in_words(const Estimate& e) {
  char text[160];
  std::snprintf(text, sizeof text, "%s %.3g s (%.3g bytes in %.0f messages, %.3g flop)",
                std::string(name(e.scheme)).c_str(), e.seconds, e.bytes, e.messages, e.flops);
  return text;
}

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// It takes the least of three, since whatever else a machine does only adds time.
double least(const std::function<double()>& seconds) { return std::min({seconds(), seconds(), seconds()}); }

// Every rank to the next.
double seconds_of_messages(Transport& transport, std::size_t bytes, int times) {
  const int ranks = transport.size(), own = transport.rank();
  const std::vector<std::byte> sent(bytes);
  std::vector<std::byte> received(bytes);
  transport.barrier();
  return seconds_of([&] {
           for (int i = 0; i < times; ++i) {
             Request arriving = transport.receive((own + ranks - 1) % ranks, received, 0);
             Request leaving = transport.send((own + 1) % ranks, sent, 0);
             arriving.wait(), leaving.wait();
           }
         }) /
         times;
}

[[noreturn]] void fail(const std::string& expected, const std::string& found) {
  throw Error(Error::Kind::argument, "distributed attention", expected, found);
}

void check_problem(const Problem& p) {
  const auto size = [](std::int64_t n, std::int64_t least) { return n >= least && n < std::int64_t{1} << 30; };
  if (!size(p.batch, 0) || !size(p.query_heads, 1) || !size(p.key_heads, 1) || !size(p.depth, 1) ||
      !size(p.value_depth, 0)) {
    fail("a batch, heads and head sizes below 2^30, none negative",
         std::to_string(p.batch) + ", " + std::to_string(p.query_heads) + " and " + std::to_string(p.key_heads) + ", " +
             std::to_string(p.depth) + " and " + std::to_string(p.value_depth));
  }
  if (p.query_heads % p.key_heads != 0) {
    fail("query heads a multiple of key heads", std::to_string(p.query_heads) + " and " + std::to_string(p.key_heads));
  }
  if (!p.queries.defined() || p.queries.ranks() != p.keys.ranks()) {
    fail("layouts of queries and keys among the same ranks",
         std::to_string(p.queries.ranks()) + " and " + std::to_string(p.keys.ranks()));
  }
}

void check_costs(const Options& o) {
  const auto speed = [](double x) { return x > 0 && std::isfinite(x); };
  const Costs& c = o.costs;
  if (!speed(c.bytes_per_second) || !speed(c.flops_per_second) || !(c.latency >= 0 && std::isfinite(c.latency))) {
    fail("finite costs: bytes and flops per second above 0, and a latency of at least 0",
         shortest_decimal(c.bytes_per_second) + ", " + shortest_decimal(c.flops_per_second) + " and " +
             shortest_decimal(c.latency));
  }
  if (o.most_bytes < 0) fail("most_bytes of at least 0", std::to_string(o.most_bytes));
}

}  // namespace

Estimate estimate(const Problem& problem, const Options& options) {
  check_problem(problem);
  check_costs(options);
  const Model model(problem, options);
  Estimate best;
  std::string reason;
  for (const Scheme scheme : {Scheme::ring, Scheme::ulysses, Scheme::gather}) {
    if (options.scheme != Scheme::automatic && options.scheme != scheme) continue;
    const std::string why = refusal(scheme, problem, options.attention);
    if (!why.empty()) {
      reason += (reason.empty() ? "" : "; ") + std::string(name(scheme)) + " cannot do " + why;
      continue;
    }
    const Estimate e = scheme == Scheme::ring      ? model.ring()
                       : scheme == Scheme::ulysses ? model.ulysses()
                                                   : model.gather();
    reason += (reason.empty() ? "" : "; ") + in_words(e);
    if (best.reason.empty() || e.seconds < best.seconds) best = e, best.reason = "found";
  }
  if (best.reason.empty())
    throw Error(Error::Kind::argument, "distributed attention", "what the scheme can do", reason);
  best.reason = reason;
  return best;
}

Costs measure(Transport& transport, DType dtype, std::int64_t head_dim) {
  Costs own;
  if (transport.size() > 1) {
    constexpr std::size_t large = std::size_t{4} << 20;
    seconds_of_messages(transport, 8, 4);  // the first messages open connections
    own.latency = least([&] { return seconds_of_messages(transport, 8, 8); });
    own.bytes_per_second = static_cast<double>(large) / least([&] { return seconds_of_messages(transport, large, 1); });
  }
  constexpr std::int64_t tokens = 512;
  const Tensor x = Tensor::ones({1, 1, tokens, head_dim}, dtype);
  own.flops_per_second = 4.0 * static_cast<double>(tokens * tokens * head_dim) /
                         least([&] { return seconds_of([&] { attn::attention(x, x, x); }); });
  for (const Costs& one : transport.all_values(own)) {
    own.latency = std::max(own.latency, one.latency);
    own.bytes_per_second = std::min(own.bytes_per_second, one.bytes_per_second);
    own.flops_per_second = std::min(own.flops_per_second, one.flops_per_second);
  }
  return own;
}

}  // namespace attn::distributed
