#include "bench/measure.hpp"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "bench/inputs.hpp"
#include "bench/limits.hpp"
#include "common/format.hpp"

namespace attn::tool {
namespace {

constexpr double kSample = 0.01;    // seconds: shorter calls are repeated for so long
constexpr double kWarmUpTo = 0.2;   // calls shorter than this are preceded by one that is not timed
constexpr double kPlainLong = 0.1;  // plain calls longer than this are timed once in all
constexpr double kPlainRate = 1e9;  // operations a second of the plain path, about
constexpr double kLimitTime = 0.1;  // a limit is a maximum: single calls are sampled for so long to find it

// One more sample; how many calls it is made of follows from a first call.
void sample(const std::function<void()>& call, Timing& timing) {
  const double known = timing.empty() ? 0 : timing.fastest();
  double expected = known < kWarmUpTo ? seconds_of(call, 1) : known;
  if (expected < kSample / 100) expected = seconds_of(call, 100);  // one call of a microsecond tells too little
  timing.seconds.push_back(seconds_of(call, static_cast<std::int64_t>(std::max(1.0, std::ceil(kSample / expected)))));
}

void sample_limit(Measurement& m) {
  for (double spent = 0; spent < kLimitTime; spent += m.time.seconds.back()) {
    m.time.seconds.push_back(seconds_of(m.work.run, 1));
  }
}

void sample(Measurement& m, double plain_seconds) {
  if (m.is_limit()) return sample_limit(m);
  sample(m.work.run, m.time);
  if (!m.work.plain || m.work.plain_operations > plain_seconds * kPlainRate) return;
  if (m.plain.empty() || m.plain.fastest() < kPlainLong) sample(m.work.plain, m.plain);
}

std::vector<Measurement> prepare(const Plan& plan, const std::function<void(const std::string&)>& progress) {
  progress("preparing");
  std::vector<std::pair<Row, Work>> all;
  for (Limit& limit : machine_limits()) all.emplace_back(limit.row, limit.work);
  BenchInputs inputs;
  for (const Row& row : plan.rows) all.emplace_back(row, make_work(row, inputs));
  std::vector<Measurement> prepared;
  for (const int threads : plan.threads) {
    for (const auto& [row, work] : all) prepared.push_back({row, threads, work, {}, {}});
  }
  return prepared;
}

}  // namespace

double seconds_of(const std::function<void()>& call, std::int64_t count) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (std::int64_t i = 0; i < count; ++i) call();
  return std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(count);
}

double Timing::median() const {
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double Timing::fastest() const { return *std::min_element(seconds.begin(), seconds.end()); }

double Measurement::rate() const {
  const double amount = work.bound == Bound::read ? work.bytes : work.operations;
  return amount / (is_limit() ? time.fastest() : time.median());
}

std::vector<Measurement> measure(const Plan& plan, const std::function<void(const std::string&)>& progress) {
  auto measurements = prepare(plan, progress);
  const int threads_before = omp_get_max_threads();
  for (int repeat = 1; repeat <= plan.repeats; ++repeat) {
    for (Measurement& m : measurements) {
      progress(
          formatted("round {} of {}: {}, {}", repeat, plan.repeats, m.row.short_text(), counted(m.threads, "thread")));
      omp_set_num_threads(m.threads);
      sample(m, plan.plain_seconds);
    }
  }
  omp_set_num_threads(threads_before);
  return measurements;
}

double limit_of(const Measurement& of, const std::vector<Measurement>& all) {
  double float32 = 0;
  for (const Measurement& m : all) {
    if (!m.is_limit() || m.threads != of.threads) continue;
    if (m.work.bound == of.work.bound) return m.rate();
    if (m.work.bound == Bound::f32) float32 = m.rate();
  }
  return float32;
}

}  // namespace attn::tool
