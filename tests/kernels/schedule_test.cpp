// Simulates how plans share out over more threads than a test can have: for bench/shapes.txt, on every unit that this
// processor can plan for.
#include "kernels/schedule.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "core/parallel.hpp"
#include "kernels/shape_list.hpp"
#include "kernels/units.hpp"

namespace attn::kernels {
namespace {

// A unit's own code takes part in its plan. What amx adds to that of avx512bf16 are products alone.
bool can_plan(const Target& target) { return target.supported || (target.isa == "amx" && unit_named("avx512bf16")); }

Schedule of_one(const PhaseWork& phase, int threads) { return simulate(std::span(&phase, 1), threads); }

TEST(Schedule, TasksAlikeMakeWaves) {
  const Schedule s = of_one({std::vector<double>(10, 2.0)}, 4);
  EXPECT_EQ(s.tasks, 10);
  EXPECT_EQ(s.waves, 3);
  EXPECT_EQ(s.total, 20);
  EXPECT_EQ(s.elapsed, 6);
  EXPECT_DOUBLE_EQ(s.speed_up(), 20.0 / 6);
  EXPECT_EQ(of_one({std::vector<double>(3, 2.0)}, 96).elapsed, 2);
  EXPECT_EQ(of_one({}, 96).speed_up(), 1);
}

TEST(Schedule, APhaseWaitsForTheOneBefore) {
  const std::vector<PhaseWork> phases{{{4, 1}}, {}, {{1, 1, 4}}};
  const Schedule s = simulate(phases, 3);
  EXPECT_EQ(s.elapsed, 8);
  EXPECT_EQ(s.waves, 2);
  EXPECT_EQ(s.total, 11);
}

// The rule is the queue's own: here its runs are taken by threads as they become free.
TEST(Schedule, ThreadsTakeRunsAsTheQueueHandsThemOut) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const int threads = 1 + static_cast<int>(random() % 12);
    PhaseWork phase;
    for (auto i = random() % 300; i > 0; --i) phase.tasks.push_back(1 + static_cast<double>(random() % 1000));
    const auto used = static_cast<int>(std::min<std::size_t>(phase.tasks.size(), static_cast<std::size_t>(threads)));
    TaskQueue queue(static_cast<std::int64_t>(phase.tasks.size()), std::max(used, 1));
    std::vector<double> free(static_cast<std::size_t>(std::max(used, 1)), 0.0);
    for (auto run = queue.take_run(); run.first < run.second; run = queue.take_run()) {
      double& next = *std::min_element(free.begin(), free.end());
      for (std::int64_t i = run.first; i < run.second; ++i) next += phase.tasks[static_cast<std::size_t>(i)];
    }
    EXPECT_EQ(of_one(phase, threads).elapsed, *std::max_element(free.begin(), free.end())) << "seed " << seed;
  }
}

TEST(Schedule, AProductsTasksAreTakenOneByOne) {
  // A run of two would keep the first thread longer.
  EXPECT_EQ(of_one({{1, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, false}, 2).elapsed, 12);
}

TEST(Schedule, ATaskPassesBehindTheOneBefore) {
  PhaseWork phase{{8, 8}};
  phase.behind = 1, phase.spans = 4;
  EXPECT_EQ(of_one(phase, 2).elapsed, 10);  // begins a quarter later
  EXPECT_EQ(of_one(phase, 1).elapsed, 16);
  phase.tasks = {8, 2};
  EXPECT_EQ(of_one(phase, 2).elapsed, 8.5);  // the last span of the one before, and then its own
  phase.behind = 2, phase.tasks = {8, 8, 2, 4};
  EXPECT_EQ(of_one(phase, 4).elapsed, 9);
}

// Multiply-adds of a causal mask, by its definition, and what is moved and made up beside them.
TEST(Work, CountsWhatMasksLetBeSeen) {
  for (const Target& target : targets()) {
    if (!can_plan(target)) continue;
    for (const auto& [line, pairs] :
         std::map<std::string, double>{{"forward 2,3,1000,64 f32 causal", 6 * 1000.0 * 1001 / 2},
                                       {"forward 2,3,1000,64 f32 none", 6 * 1000.0 * 1000},
                                       {"forward 1,6/2,1000,64 f32 window=100", 6 * (101 * 1000.0 - 100.0 * 101 / 2)},
                                       {"backward 2,3,1000,64 f32 causal", 2.5 * 6 * 1000.0 * 1001 / 2}}) {
      for (const int threads : {1, 96}) {
        const Schedule s = simulate(Listed(line).phases(*target.kernels, threads), threads);
        const double most = line.starts_with("backward") ? 1.35 : line.ends_with("=100") ? 1.7 : 1.12;
        EXPECT_GE(s.total, 128 * pairs) << line;
        EXPECT_LE(s.total, 128 * pairs * most) << line << " on " << target.isa << ", " << threads << " threads";
      }
    }
  }
}

// Where each thread has much to do, threads may wait for kMostIdle of their time. "Much" is 8 million multiply-adds
// each, some 60 µs of a core with AVX-512.
constexpr double kMuch = 8e6, kMostIdle = 0.05;

struct Exception {
  const char* row;
  std::map<int, double> idle;  // by threads, in percent, of the worst unit
};

const Exception kExceptions[] = {
    // A group of queries, as wide as a tile, is the least task: 96 threads have 2.7 or 1.3 of them, 16 threads 1.5.
    {"forward 1,8,1024,64 f32 keep", {{96, 12}}},
    {"forward 1,8,1024,64 f32 bias", {{96, 12}}},
    {"forward 1,8,1024,64 f32 softcap=50", {{96, 12}}},
    {"forward 1,8,1024,64 f32 dropout=0.1", {{96, 12}}},
    {"forward 1,8,1024,64 f32 dropout-keep=0.1", {{96, 12}}},
    {"forward 1,8,1024,64 f32 alibi", {{96, 12}}},
    {"forward 1,8,1024,64 f32 score", {{96, 12}}},
    {"forward 1,4,1024,256 f32 none", {{96, 34}}},
    {"forward 1,8,77/1500,64/96 f32 none", {{16, 25}}},
    {"forward 1,8,4096,128 f32 window=512", {{128, 6}}},
    // How much a random mask keeps differs from group to group, and the plan does not look.
    {"forward 1,8,4096,128 f32 blocks=0.1", {{64, 6}, {96, 9}, {128, 11}}},
    {"forward 1,8,4096,128 bf16 blocks=0.1", {{64, 6}, {96, 9}, {128, 11}}},
    {"backward 1,8,4096,128 f32 blocks=0.1", {{16, 9}, {32, 11}, {64, 24}, {96, 25}, {128, 35}}},
    // Steps of a chunk wait for each other, and shorter ones would load the queries more often: calls would take
    // longer.
    {"backward 1,8,4096,128 f32 none", {{64, 9}, {96, 9}, {128, 18}}},
    {"backward 1,8,4096,128 f32 causal", {{32, 7}, {64, 14}, {96, 19}, {128, 25}}},
    {"backward 1,12,1024,64 f32 none", {{16, 11}, {32, 34}, {64, 41}, {96, 40}, {128, 48}}},
    {"backward 1,12,1024,64 f32 causal", {{8, 6}, {16, 6}, {32, 16}, {64, 29}, {96, 37}, {128, 53}}},
    {"backward 1,8,1024,64 f32 dropout=0.1", {{16, 11}, {32, 11}, {64, 28}, {96, 29}, {128, 47}}},
    {"backward 1,8,1024,64 f32 score", {{16, 11}, {32, 11}, {64, 28}, {96, 29}, {128, 47}}},
    {"training 1,8,4096,128 f32 none", {{64, 7}, {96, 8}, {128, 14}}},
    {"training 1,8,4096,128 f32 causal", {{64, 11}, {96, 15}, {128, 20}}},
    {"training 1,12,1024,64 f32 causal", {{32, 12}, {64, 23}, {96, 30}, {128, 46}}},
    {"training 1,8,4096,128 bf16 none", {{64, 9}, {96, 18}, {128, 22}}},
    {"training 1,8,4096,128 bf16 causal", {{64, 11}, {96, 22}, {128, 34}}},
    {"training 1,8,4096,128 f32 none medium", {{64, 9}, {96, 18}, {128, 22}}},
    // Few rows and columns for a deep sum, which is never cut.
    {"linear 1024,768,2304 f32", {{64, 6}, {96, 8}, {128, 11}}},
    {"linear-training 8192,768,768 f32", {{128, 13}}},
    {"linear-training 8192,768,768 f32 none medium", {{128, 13}}},
    {"module-training 8,1024,768,12 f32 causal", {{128, 7}}},
    {"module-training 8,1024,768,12 f32 causal medium", {{128, 7}}},
};

// Idle time by row and threads, where it is more than it may be: of the worst unit, in percent.
std::map<std::string, std::map<int, double>> too_idle() {
  std::map<std::string, std::map<int, double>> found;
  for (const Target& target : targets()) {
    if (!can_plan(target)) continue;
    for (const Listed& row : listed_shapes()) {
      for (const int threads : {8, 16, 32, 64, 96, 128}) {
        const Schedule s = simulate(row.phases(*target.kernels, threads), threads);
        const double idle = 1 - s.speed_up() / threads;
        if (s.total < kMuch * threads || idle <= kMostIdle) continue;
        double& worst = found[row.text][threads];
        worst = std::max(worst, 100 * idle);
      }
    }
  }
  return found;
}

TEST(SlowListedShapes, KeepManyThreadsBusy) {
  auto found = too_idle();
  // An exception may be that of a unit which this processor has not.
  const bool all = std::ranges::all_of(targets(), can_plan);
  for (const auto& [row, idle] : kExceptions) {
    for (const auto& [threads, most] : idle) {
      const double worst = found[row][threads];
      EXPECT_LE(worst, most) << row << ", " << threads << " threads";
      EXPECT_TRUE(worst > 0 || !all) << row << ", " << threads << " threads: no exception any more";
      found[row].erase(threads);
    }
  }
  for (const auto& [row, idle] : found) {
    for (const auto& [threads, worst] : idle) ADD_FAILURE() << row << ", " << threads << " threads: " << worst << " %";
  }
}

}  // namespace
}  // namespace attn::kernels
