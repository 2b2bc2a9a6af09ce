#include "core/parallel.hpp"

#if defined(_OPENMP)
#include <omp.h>
#include <pthread.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <utility>

#include "core/memory.hpp"
#if defined(_OPENMP)
#include "core/team.hpp"
#endif

namespace attn {
namespace {

constexpr std::size_t kLargePage = std::size_t{1} << 21, kMostKept = std::size_t{256} << 20;
constexpr double kSerialBelow = 2e5;  // operations: some 2 µs of work, what waking the threads costs

// A thread's scratch, kept from call to call: fresh pages would cost more than a small call's work. It has no
// destructor, since a call may come after the thread's variables are gone: see AtThreadEnd.
class Scratch {
 public:
  void* reserve(std::size_t bytes);
  void give_back() noexcept {
    ::operator delete (std::exchange(memory_, nullptr), std::align_val_t{kLargePage});
    bytes_ = 0;
  }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

constinit thread_local Scratch own_scratch, shared_scratch;
constinit thread_local bool shared_is_lent = false;

#if defined(_OPENMP)
constinit thread_local Team* own_team = nullptr;
thread_local bool in_team = false;
#if defined(ATTN_STD_THREADS)
thread_local int teams_wanted =
    1;  // for the thread sanitizer, which does not know how OpenMP's runtime hands work over
#else
thread_local int teams_wanted = 0;
#endif

void end_team() { delete std::exchange(own_team, nullptr); }
void give_back_at_thread_end();

template <class F>
void on_threads(int count, F&& body) {
  if (teams_wanted > 0) {
    if (!own_team) {
      // OpenMP's threads go on looking for work for some 5 ms after a call, as of a model's loading, and the team needs
      // their cores at once. They begin anew with OpenMP's next call.
      omp_pause_resource_all(omp_pause_soft);
      give_back_at_thread_end();
      own_team = new Team;
    }
    own_team->run(count, [&body] {
      in_team = true;
      body();
      in_team = false;
    });
    return;
  }
#if !defined(ATTN_STD_THREADS)
#pragma omp parallel num_threads(count)
  body();
#endif
}

bool nested() { return in_team || omp_in_parallel() != 0; }

// A child of fork() has but the thread that forked, which would wait there for the others of its team, or of OpenMP's,
// for ever. So both end before: parent and child start others with their next call. Inside a parallel region they stay,
// and the child has one thread.
void end_teams() {
  if (!in_team) end_team();
  omp_pause_resource_all(omp_pause_soft);
}

[[maybe_unused]] const int registered = pthread_atfork(end_teams, nullptr, nullptr);

int most_threads() { return omp_get_max_threads(); }
void want_teams(int more) { teams_wanted += more; }
#else  // one thread, as in a page
template <class F>
void on_threads(int, F&& body) {
  body();
}
bool nested() { return false; }
int most_threads() { return 1; }
void want_teams(int) {}
void end_team() {}
#endif

// Gives back what a thread has kept. Calls that come later, from destructors of statics, which run after this one at
// the end of the main thread, or from exit handlers, find nothing kept and begin anew; what they keep goes with the
// process.
struct AtThreadEnd {
  ~AtThreadEnd() {
    own_scratch.give_back();
    shared_scratch.give_back();
    end_team();
  }
};

void give_back_at_thread_end() { static thread_local const AtThreadEnd at_end; }

void* Scratch::reserve(std::size_t bytes) {
  if (bytes <= bytes_) return memory_;
  give_back();
  give_back_at_thread_end();
  const std::size_t whole = bytes < kLargePage / 2 ? bytes : (bytes + kLargePage - 1) / kLargePage * kLargePage;
  memory_ = ::operator new (whole, std::align_val_t{kLargePage}, std::nothrow);  // sanitizers abort in the other
  if (!memory_) throw OutOfMemory(whole, "a thread's share of the work");
#if defined(__linux__)
  if (whole >= kLargePage) madvise(memory_, whole, MADV_HUGEPAGE);
#endif
  bytes_ = whole;
  return memory_;
}

}  // namespace

CallMemory::CallMemory(std::size_t bytes) {
  if (bytes > kMostKept || shared_is_lent) {
    own_ = allocate(bytes);
    data_ = own_.get();
    return;
  }
  data_ = shared_scratch.reserve(bytes);
  shared_is_lent = true;
}

CallMemory::~CallMemory() {
  if (!own_) shared_is_lent = false;
}

namespace {
thread_local TaskTimes* task_times = nullptr;
}  // namespace

TaskTimes::TaskTimes() : before_(task_times) { task_times = this; }
TaskTimes::~TaskTimes() { task_times = before_; }
TaskTimes* TaskTimes::of_thread() noexcept { return task_times; }

void TaskTimes::begin(bool by_runs) {
  phases_.push_back({{}, by_runs});
  in_task_ = false;
}

void TaskTimes::next(bool more) {
  const auto now = std::chrono::steady_clock::now();
  if (in_task_) phases_.back().seconds.push_back(std::chrono::duration<double>(now - since_).count());
  in_task_ = more, since_ = std::chrono::steady_clock::now();
}

StepTeam::StepTeam() noexcept { want_teams(1); }
StepTeam::~StepTeam() { want_teams(-1); }

int thread_count() noexcept { return most_threads(); }

namespace {
thread_local int cut_for = 0;
}  // namespace

PlannedThreads::PlannedThreads(int threads) noexcept : before_(cut_for) {
  if (threads > 0) cut_for = threads;
}
PlannedThreads::~PlannedThreads() { cut_for = before_; }

int planned_threads() noexcept { return cut_for > 0 ? cut_for : thread_count(); }

std::pair<std::int64_t, std::int64_t> TaskQueue::take_run() {
  std::int64_t first = next_, last;
  do {
    last = first + run_length(tasks_ - first, threads_);
  } while (first < tasks_ && !next_.compare_exchange_weak(first, last));
  return {first, std::max(first, last)};
}

namespace {

// On this thread alone, a task at a time; what is too little to be shared out is nobody's task.
bool timed(std::int64_t tasks, std::size_t scratch_bytes, double operations, bool by_runs,
           FunctionRef<TaskQueue&, void*> work) {
  TaskTimes* const times = TaskTimes::of_thread();
  if (!times || tasks <= 1 || operations < kSerialBelow || nested()) return false;
  times->begin(by_runs);
  TaskQueue queue(tasks, 1, times);
  work(queue, own_scratch.reserve(scratch_bytes));
  return true;
}

}  // namespace

void parallel_for(std::int64_t tasks, std::size_t scratch_bytes, double operations,
                  FunctionRef<std::int64_t, void*> work) {
  const auto one_by_one = [&](TaskQueue& queue, void* scratch) {
    for (std::int64_t task = queue.take(); task >= 0; task = queue.take()) work(task, scratch);
  };
  if (timed(tasks, scratch_bytes, operations, true, one_by_one)) return;
  parallel_shares(tasks, scratch_bytes, operations, [&](TaskQueue& queue, void* scratch) {
    for (auto run = queue.take_run(); run.first < run.second; run = queue.take_run()) {
      for (std::int64_t task = run.first; task < run.second; ++task) work(task, scratch);
    }
  });
}

void parallel_in_order(std::int64_t tasks, std::size_t scratch_bytes, double operations,
                       FunctionRef<std::int64_t, void*> work) {
  parallel_shares(tasks, scratch_bytes, operations, [&](TaskQueue& queue, void* scratch) {
    for (std::int64_t task = queue.take(); task >= 0; task = queue.take()) work(task, scratch);
  });
}

void parallel_shares(std::int64_t tasks, std::size_t scratch_bytes, double operations,
                     FunctionRef<TaskQueue&, void*> work) {
  if (timed(tasks, scratch_bytes, operations, false, work)) return;
  const auto threads = static_cast<int>(std::min<std::int64_t>(tasks, thread_count()));
  const bool serial = threads <= 1 || operations < kSerialBelow || nested();
  TaskQueue queue(tasks, serial ? 1 : threads);
  if (serial) {
    work(queue, own_scratch.reserve(scratch_bytes));
    return;
  }
  std::atomic<bool> out_of_memory = false;
  on_threads(threads, [&] {
    void* scratch = nullptr;
    try {
      scratch = own_scratch.reserve(scratch_bytes);
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
      queue.stop();
      return;
    }
    work(queue, scratch);
  });
  if (out_of_memory) throw OutOfMemory(scratch_bytes, "a thread's share of the work");
}

}  // namespace attn
