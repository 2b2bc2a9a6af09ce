// The threads of a step: who comes, who is waited for, and that they wake again.
#include "core/team.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "core/testing.hpp"
#include "core/threads.hpp"

namespace attn::test {
namespace {

// Tells whether `count` threads come within a minute, this one among them.
bool all_come(std::atomic<int>& came, int count) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  ++came;
  while (came < count && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return came >= count;
}

// More, fewer and more again, one call after the other, or after they have gone to sleep.
TEST(Team, AsManyComeAsAreAsked) {
  Team team;
  for (const auto pause : {std::chrono::milliseconds(0), std::chrono::milliseconds(5)}) {
    for (const int count : {1, 2, 3, 8, 2, 1, 8}) {
      std::this_thread::sleep_for(pause);
      std::atomic<int> came = 0, all = 0;
      team.run(count, [&] { all += all_come(came, count) ? 1 : 0; });
      EXPECT_EQ(all, count) << pause.count() << " ms";
      EXPECT_EQ(came, count) << "nobody comes twice, or uninvited";
    }
  }
}

// Results of those who came are there when the call returns, however long they took.
TEST(Team, ACallWaitsForWhoeverCame) {
  Team team;
  for (const auto time : {std::chrono::milliseconds(0), std::chrono::milliseconds(5)}) {
    std::atomic<int> came = 0;
    int written = 0;  // by the other one, and not atomic: the thread sanitizer sees whether the call orders it
    const auto caller = std::this_thread::get_id();
    team.run(2, [&] {
      EXPECT_TRUE(all_come(came, 2));
      if (std::this_thread::get_id() == caller) return;
      std::this_thread::sleep_for(time);
      written = 1;
    });
    EXPECT_EQ(written, 1) << time.count() << " ms";
  }
}

// A thread that is still inside one call keeps no place of the next: every call is complete by itself.
TEST(Team, ManyShortCallsAreWhole) {
  const Threads threads(4);
  const StepTeam step;
  std::vector<int> done(40);
  for (int call = 1; call <= 3000; ++call) {
    parallel_for(40, 64, 1e9, [&](std::int64_t task, void*) {
      for (std::atomic<int> busy = 0; busy < 500;) ++busy;  // long enough for others to come
      ++done[static_cast<std::size_t>(task)];
    });
    ASSERT_EQ(std::count(done.begin(), done.end(), call), 40) << "call " << call;
  }
}

TEST(Team, ACallWithinACallStaysOnItsThread) {
  const Threads threads(3);
  const StepTeam step;
  std::atomic<int> elsewhere = 0;
  parallel_for(12, 0, 1e9, [&](std::int64_t, void*) {
    const auto outer = std::this_thread::get_id();
    parallel_for(12, 0, 1e9, [&](std::int64_t, void*) { elsewhere += std::this_thread::get_id() == outer ? 0 : 1; });
  });
  EXPECT_EQ(elsewhere, 0);
}

}  // namespace
}  // namespace attn::test
