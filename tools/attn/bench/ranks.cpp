#include "bench/ranks.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>

#include "attn/error.hpp"
#include "bench/inputs.hpp"
#include "common/format.hpp"
#include "common/json.hpp"
#include "common/table.hpp"

namespace attn::tool {
namespace {

using distributed::Layout;
using distributed::Request;
using distributed::Transport;

// Adds the time that something took, also where it throws.
class Stopwatch {
 public:
  explicit Stopwatch(double& sum) : sum_(sum) {}
  Stopwatch(const Stopwatch&) = delete;
  ~Stopwatch() { sum_ += std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;

  double& sum_;
  Clock::time_point start_ = Clock::now();
};

// A rank's time that is not for messages is computing.
struct Shares {
  double seconds = 0, processors = 0, sending = 0, waiting = 0, bytes = 0, messages = 0;
};

class TimedWait : public Request::State {
 public:
  TimedWait(Request request, Shares& to) : request_(std::move(request)), to_(to) {}
  void wait() override {
    const Stopwatch watch(to_.waiting);
    request_.wait();
  }

 private:
  Request request_;
  Shares& to_;
};

class TimedTransport : public Transport {
 public:
  TimedTransport(Transport& of, Shares& to) : of_(of), to_(to) {}
  int rank() const noexcept override { return of_.rank(); }
  int size() const noexcept override { return of_.size(); }
  Request send(int to, distributed::Bytes message, int tag) override {
    to_.bytes += static_cast<double>(message.size()), ++to_.messages;
    const Stopwatch watch(to_.sending);
    return Request(std::make_unique<TimedWait>(of_.send(to, message, tag), to_));
  }
  Request receive(int from, distributed::Room message, int tag) override {
    const Stopwatch watch(to_.sending);
    return Request(std::make_unique<TimedWait>(of_.receive(from, message, tag), to_));
  }
  void progress() override {
    const Stopwatch watch(to_.sending);
    of_.progress();
  }

 private:
  Transport& of_;
  Shares& to_;
};

struct RankOperands {
  Tensor q, k, v, d_output;
  distributed::Options options;
  double operations = 0;
};

RankOperands operands_of(const Row& row, distributed::Scheme scheme, const Transport& ranks, BenchInputs& inputs) {
  const std::vector<Extent> e = parse_shape(row.shape);
  const DType dtype = parse_dtype(row.dtype);
  const std::int64_t tokens = e[2].first;
  RankOperands in;
  in.options.scheme = scheme;
  in.options.attention.mask.is_causal = row.mask == "causal";
  in.options.queries = row.mask == "causal" ? Layout::zigzag(tokens, ranks.size()) : Layout::even(tokens, ranks.size());
  const std::int64_t rows = in.options.queries.rows(ranks.rank());
  in.q = inputs.normal("q", {e[0].first, e[1].first, rows, e[3].first}, dtype);
  in.k = inputs.normal("k", {e[0].first, e[1].second, rows, e[3].first}, dtype);
  in.v = inputs.normal("v", {e[0].first, e[1].second, rows, e[3].second}, dtype);
  in.d_output = inputs.normal("d_output", {e[0].first, e[1].first, rows, e[3].second}, dtype);
  const double pairs = static_cast<double>(tokens) * static_cast<double>(tokens) * (row.mask == "causal" ? 0.5 : 1);
  in.operations = 2.0 * pairs * static_cast<double>(e[0].first * e[1].first * (e[3].first + e[3].second)) *
                  (row.op == "training" ? 3.5 : 1);
  return in;
}

// In one process the call is attention() itself: what ranks are compared with.
void run(const Row& row, const RankOperands& in, Transport& ranks) {
  const bool is_one = ranks.size() == 1, trains = row.op == "training";
  const AttentionOptions& o = in.options.attention;
  if (is_one) {
    const AttentionResult result = attention(in.q, in.k, in.v, o);
    if (trains) attention_backward(in.d_output, in.q, in.k, in.v, o, result);
    return;
  }
  const AttentionResult result = distributed::attention(ranks, in.q, in.k, in.v, in.options);
  if (trains) distributed::attention_backward(ranks, in.d_output, in.q, in.k, in.v, in.options, result);
}

double slowest(const std::vector<Shares>& repeat) {
  return std::max_element(repeat.begin(), repeat.end(),
                          [](const Shares& a, const Shares& b) { return a.seconds < b.seconds; })
      ->seconds;
}

}  // namespace

void check_for_ranks(const Row& row) {
  const bool fits = (row.op == "forward" || row.op == "training") && (row.mask == "none" || row.mask == "causal") &&
                    row.precision == "highest" && row.numbers == "normal" && row.dtype != "i8";
  const std::vector<Extent> e = parse_shape(row.shape);
  if (fits && e.size() == 4 && e[2].first == e[2].second) return;
  throw Error(Error::Kind::data, "attn bench", "forward or training, with as many keys as queries, none or causal",
              row.text(), "--filter leaves rows out");
}

RanksMeasurement measure_on_ranks(const Row& row, distributed::Scheme scheme, int repeats, Transport& ranks) {
  BenchInputs inputs;
  RankOperands in = operands_of(row, scheme, ranks, inputs);
  distributed::Estimate estimated;
  if (ranks.size() > 1) {
    in.options.costs = measure(ranks, in.q.dtype(), in.q.size(3));
    const std::vector<Extent> e = parse_shape(row.shape);
    estimated = estimate({e[0].first, e[1].first, e[1].second, e[3].first, e[3].second, in.q.dtype(),
                          in.options.queries, in.options.queries},
                         in.options);
    in.options.scheme = estimated.scheme;
  }
  std::vector<std::vector<Shares>> samples;
  for (int i = 0; i <= repeats; ++i) {  // the first is not counted: it opens connections
    Shares own;
    TimedTransport timed(ranks, own);
    ranks.barrier();
    {
      const Stopwatch watch(own.seconds);
      const std::clock_t start = std::clock();
      run(row, in, timed);
      own.processors = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    }
    if (i > 0)
      samples.push_back(ranks.all_values(own));
    else
      ranks.all_values(own);
  }
  std::sort(samples.begin(), samples.end(), [](const auto& a, const auto& b) { return slowest(a) < slowest(b); });
  const std::vector<Shares>& middle = samples[samples.size() / 2];
  RanksMeasurement m{row, ranks.size() == 1 ? "one process" : std::string(distributed::name(in.options.scheme))};
  m.median = slowest(middle), m.fastest = slowest(samples.front()), m.operations = in.operations;
  m.estimated = row.op == "forward" ? estimated.seconds : 0, m.costs = in.options.costs;
  m.processors = 1e30;
  for (const std::vector<Shares>& repeat : samples) {
    double sum = 0;
    for (const Shares& rank : repeat) sum += rank.processors;
    m.processors = std::min(m.processors, sum);
  }
  for (const Shares& rank : middle) {
    const double count = ranks.size();
    m.computing += (rank.seconds - rank.sending - rank.waiting) / count;
    m.sending += rank.sending / count, m.waiting += rank.waiting / count;
    m.bytes = std::max(m.bytes, rank.bytes), m.messages = std::max(m.messages, rank.messages);
  }
  return m;
}

std::string ranks_text(const std::vector<RanksMeasurement>& all, int ranks) {
  constexpr double kGiga = 1e9, kMega = 1e6;
  Table table{{"op", "shape", "dtype", "mask", "scheme", "median", "fastest", "computing", "waiting", "sending",
               "MB sent", "GFLOP/s"}};
  const auto seconds = [](double s) { return formatted("{:.4g} s", s); };
  for (const RanksMeasurement& m : all) {
    table.push_back({m.row.op, m.row.shape, m.row.dtype, m.row.mask, m.scheme, seconds(m.median), seconds(m.fastest),
                     seconds(m.computing), seconds(m.waiting), seconds(m.sending), formatted("{:.1f}", m.bytes / kMega),
                     formatted("{:.1f}", m.operations / m.median / kGiga)});
  }
  return counted(ranks, "rank") + "\n" + joined(table_lines(table, "<<<<<>>>>>>>"), "\n") + "\n";
}

std::string ranks_json(const std::vector<RanksMeasurement>& all, int ranks) {
  std::string lines;
  for (const RanksMeasurement& m : all) {
    const Json json{{"op", m.row.op},
                    {"shape", m.row.shape},
                    {"dtype", m.row.dtype},
                    {"mask", m.row.mask},
                    {"ranks", ranks},
                    {"scheme", m.scheme},
                    {"seconds", m.median},
                    {"fastest", m.fastest},
                    {"processors", m.processors},
                    {"computing", m.computing},
                    {"waiting", m.waiting},
                    {"sending", m.sending},
                    {"bytes", m.bytes},
                    {"messages", m.messages},
                    {"estimated", m.estimated},
                    {"bytes_per_second", m.costs.bytes_per_second},
                    {"latency", m.costs.latency},
                    {"flops_per_second", m.costs.flops_per_second},
                    {"operations", m.operations}};
    lines += json.dump() + "\n";
  }
  return lines;
}

}  // namespace attn::tool
