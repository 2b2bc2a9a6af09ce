// Work in tasks, on all threads, each with scratch of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace attn {

// A function handed down without an allocation; it must outlive the call.
template <class... Args>
class FunctionRef {
 public:
  template <class F>
  FunctionRef(const F& f)  // NOLINT: implicit
      : object_(&f), call_([](const void* object, Args... args) { (*static_cast<const F*>(object))(args...); }) {}

  void operator()(Args... args) const { call_(object_, args...); }

 private:
  const void* object_;
  void (*call_)(const void*, Args...);
};

// While it lives, whatever its thread would share out to threads is done by that thread alone, and every task is timed.
class TaskTimes {
 public:
  struct Phase {
    std::vector<double> seconds;  // in the order in which tasks are handed out
    bool by_runs;                 // as parallel_for() does it
  };

  TaskTimes();
  ~TaskTimes();
  TaskTimes(const TaskTimes&) = delete;
  TaskTimes& operator=(const TaskTimes&) = delete;

  const std::vector<Phase>& phases() const { return phases_; }

  static TaskTimes* of_thread() noexcept;  // null: nothing is timed
  void begin(bool by_runs);                // a phase
  void next(bool more);                    // the task before has ended, and there are more

 private:
  TaskTimes* before_;
  std::vector<Phase> phases_;
  std::chrono::steady_clock::time_point since_;
  bool in_task_ = false;
};

// The tasks of a call, which its threads take in order.
class TaskQueue {
 public:
  TaskQueue(std::int64_t tasks, int threads, TaskTimes* times = nullptr)
      : tasks_(tasks), threads_(threads), times_(times) {}

  // The next one's number, or -1 when none is left; `early`, by a thread that still has one, also when there are fewer
  // than threads.
  std::int64_t take(bool early = false) {
    if (early && tasks_ - next_ < threads_) return -1;
    const std::int64_t task = next_++;
    if (times_) times_->next(task < tasks_);
    return task < tasks_ ? task : -1;
  }

  // Some of those that are left, [first, last), empty when none is, by runs that become shorter: a thread mostly goes
  // from one task to the next, of which it may have fetched something, and none waits long for the last.
  std::pair<std::int64_t, std::int64_t> take_run();

  // How many of those that are `left` a thread takes by a run.
  static std::int64_t run_length(std::int64_t left, std::int64_t threads) {
    return (left + 4 * threads - 1) / (4 * threads);
  }

  void stop() { next_ = tasks_; }

 private:
  const std::int64_t tasks_, threads_;
  TaskTimes* const times_;
  std::atomic<std::int64_t> next_ = 0;
};

// How many threads parallel work uses: omp_get_max_threads(), so OMP_NUM_THREADS sets it.
int thread_count() noexcept;

// While it lives, its thread's calls are cut into tasks as for so many threads, whoever carries them out; 0 changes
// nothing.
class PlannedThreads {
 public:
  explicit PlannedThreads(int threads) noexcept;
  ~PlannedThreads();
  PlannedThreads(const PlannedThreads&) = delete;
  PlannedThreads& operator=(const PlannedThreads&) = delete;

 private:
  int before_;
};

// For how many threads calls are cut: thread_count(), but for PlannedThreads.
int planned_threads() noexcept;

// While it lives, its thread's calls are shared out to threads of its own, which look for the next call before they
// sleep, instead of to OpenMP's: for a step of many small calls. None of them waits for a thread that another program
// keeps from its core. Outside, OpenMP's threads are those that other libraries of the process use too.
class StepTeam {
 public:
  StepTeam() noexcept;
  ~StepTeam();
  StepTeam(const StepTeam&) = delete;
  StepTeam& operator=(const StepTeam&) = delete;
};

// Memory for what the tasks of a call share, aligned to 64. Up to 256 MB are the calling thread's, kept from call to
// call as scratch is; what is more, or asked for while those are in use, is new.
class CallMemory {
 public:
  explicit CallMemory(std::size_t bytes);  // throws std::bad_alloc
  ~CallMemory();
  CallMemory(const CallMemory&) = delete;
  CallMemory& operator=(const CallMemory&) = delete;

  void* get() const noexcept { return data_; }

 private:
  std::shared_ptr<void> own_;
  void* data_;
};

// Calls work(task, scratch) for each task in [0, tasks), in any order; scratch has `scratch_bytes`, aligned to
// 64, one a thread. `operations` is the work in all: too little stays on the calling thread. Throws std::bad_alloc
// when there is no memory for scratch; some tasks may have run then.
void parallel_for(std::int64_t tasks, std::size_t scratch_bytes, double operations,
                  FunctionRef<std::int64_t, void*> work);

// The same in runs of one: tasks are begun in order, and one may wait for another that was begun before it.
void parallel_in_order(std::int64_t tasks, std::size_t scratch_bytes, double operations,
                       FunctionRef<std::int64_t, void*> work);

// The same with work(tasks, scratch) once on each thread, which takes tasks until there are none.
void parallel_shares(std::int64_t tasks, std::size_t scratch_bytes, double operations,
                     FunctionRef<TaskQueue&, void*> work);

}  // namespace attn
