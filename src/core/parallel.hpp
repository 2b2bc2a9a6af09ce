// Work in tasks, on all threads, each with scratch of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace attn {

// A function handed down without an allocation; it must outlive the call.
class TaskRef {
 public:
  template <class F>
  TaskRef(const F& f)
      : object_(&f), call_([](const void* object, std::int64_t task, void* scratch) {  // NOLINT: implicit
          (*static_cast<const F*>(object))(task, scratch);
        }) {}

  void operator()(std::int64_t task, void* scratch) const { call_(object_, task, scratch); }

 private:
  const void* object_;
  void (*call_)(const void*, std::int64_t, void*);
};

// How many threads parallel work uses: omp_get_max_threads(), so OMP_NUM_THREADS sets it.
int thread_count() noexcept;

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
void parallel_for(std::int64_t tasks, std::size_t scratch_bytes, double operations, TaskRef work);

}  // namespace attn
