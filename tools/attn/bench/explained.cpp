#include "bench/explained.hpp"

#include <omp.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "bench/inputs.hpp"
#include "bench/measure.hpp"
#include "bench/work.hpp"
#include "common/format.hpp"
#include "common/json.hpp"
#include "common/plans.hpp"
#include "core/parallel.hpp"
#include "kernels/schedule.hpp"

namespace attn::tool {
namespace {

// The tasks of a call that is planned for so many threads, one by one. What is kept is the least of some rounds: one
// task that the system held up would be what all threads wait for.
class TimedTasks {
 public:
  explicit TimedTasks(int threads) : threads_(threads) {}

  void time(const Work& work) {
    const PlannedThreads as_on(threads_);
    const TaskTimes times;
    double alone = seconds_of(work.run);
    for (std::size_t i = 0; i < times.phases().size(); ++i) {
      const TaskTimes::Phase& phase = times.phases()[i];
      for (const double task : phase.seconds) alone -= task;
      if (i == phases_.size()) phases_.push_back({phase.seconds, phase.by_runs});
      std::vector<double>& least = phases_[i].tasks;
      for (std::size_t n = 0; n < least.size(); ++n) least[n] = std::min(least[n], phase.seconds[n]);
    }
    alone_ = std::min(alone_, alone);
  }

  // Adds what is not shared out to the time until the last thread of every phase has ended.
  double predicted() const { return alone_ + simulate(phases_, threads_).elapsed; }

 private:
  int threads_;
  std::vector<kernels::PhaseWork> phases_;
  double alone_ = std::numeric_limits<double>::infinity();  // seconds outside of tasks
};

struct Explained {
  int threads;  // 0: those of the machine, and nothing was timed
  std::vector<kernels::Explanation> plans;
  double one = 0, many = 0;  // seconds, in turns: the median of some rounds on one thread, and as predicted
};

Explained explained(const Work& work, int threads) {
  Explained made{threads, {}};
  {
    using Of = kernels::PlanRecord::Of;
    const PlannedThreads as_on(threads);
    const kernels::PlanRecord record(threads > 0 ? Of::plans_and_schedules : Of::plans);
    work.run();
    made.plans = record.plans();
  }
  if (threads == 0) return made;
  constexpr int rounds = 5;
  Timing one;
  TimedTasks many(threads);
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  for (int round = 0; round < rounds; ++round) {
    one.seconds.push_back(seconds_of(work.run));
    many.time(work);
  }
  omp_set_num_threads(before);
  made.one = one.median(), made.many = many.predicted();
  return made;
}

std::string text_of(const Explained& e) {
  std::string text = plans_text(e.plans);
  if (e.threads == 0) return text;
  return text + formatted("predicted on {}: {:.3f} ms; on 1 thread: {:.3f} ms, {:.1f} times as long\n",
                          counted(e.threads, "thread"), 1e3 * e.many, 1e3 * e.one, e.one / e.many);
}

Json json_of(const Row& row, const Explained& e) {
  Json json = row_json(row);
  json["plans"] = plans_json(e.plans);
  if (e.threads > 0) {
    json.update({{"threads", e.threads}, {"one_ms", 1e3 * e.one}, {"predicted_ms", 1e3 * e.many}});
  }
  return json;
}

}  // namespace

std::string explained(const std::vector<Row>& rows, const std::vector<int>& threads, bool json) {
  std::string all;
  for (const Row& row : rows) {
    BenchInputs inputs;
    const Work work = make_work(row, inputs);
    if (!json) all += row.text() + "\n";
    for (const int count : threads) {
      const Explained e = explained(work, count);
      all += json ? json_of(row, e).dump() + "\n" : text_of(e);
    }
    if (!json) all += "\n";
  }
  return all;
}

}  // namespace attn::tool
