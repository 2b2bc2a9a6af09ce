// How the tasks of a plan share out over threads: computed, not run, so that a machine may have fewer of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/plan.hpp"

namespace attn::kernels {

// How long each task of a phase takes, in any unit, in the order in which threads take them.
struct PhaseWork {
  std::vector<double> tasks;
  bool by_runs = true;  // as parallel_for() hands them out; else one at a time, as products take theirs
  // Task i passes over something behind task i - `behind`, in `spans` of equal length; 0: all on their own.
  std::int64_t behind = 0, spans = 1;
};

struct Schedule {
  std::int64_t tasks = 0;
  std::int64_t waves = 0;   // tasks that follow each other on the busiest thread, in all phases
  double total = 0;         // of all tasks
  double elapsed = 0;       // until the last thread of every phase has ended
  double speed_up() const;  // over one thread

  bool operator==(const Schedule&) const = default;
};

// Each thread takes what comes next as soon as it is free, as TaskQueue hands it out.
Schedule simulate(std::span<const PhaseWork> phases, int threads);

// The work of a plan's tasks, by phase: multiply-adds, of the pairs that intervals and blocks let be seen. A number
// that is packed or summed up counts as eight.
std::vector<PhaseWork> work(const Problem& p, const ForwardPlan& plan);
std::vector<PhaseWork> work(const Problem& p, const BackwardPlan& plan);
std::vector<PhaseWork> work(const Product& p, const ProductPlan& plan);
std::vector<PhaseWork> work(const FewRows& p, const FewRowsPlan& plan);

}  // namespace attn::kernels
