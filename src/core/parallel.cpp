#include "core/parallel.hpp"

#include <omp.h>

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

namespace attn {
namespace {

constexpr double kSerialBelow = 2e5;  // operations: some 2 µs of work, what waking the threads costs

struct AlignedDelete {
  void operator()(void* p) const { ::operator delete (p, std::align_val_t{64}); }
};

// A thread's scratch, kept from call to call: fresh pages would cost more than a small call's work.
class Scratch {
 public:
  void* reserve(std::size_t bytes) {
    if (bytes > bytes_) {
      memory_.reset();
      bytes_ = 0;
      memory_.reset(::operator new (bytes, std::align_val_t{64}));
      bytes_ = bytes;
    }
    return memory_.get();
  }

 private:
  std::unique_ptr<void, AlignedDelete> memory_;
  std::size_t bytes_ = 0;
};

thread_local Scratch own_scratch;

}  // namespace

int thread_count() noexcept { return omp_get_max_threads(); }

void parallel_for(std::int64_t tasks, std::size_t scratch_bytes, double operations, TaskRef work) {
  const auto threads = static_cast<int>(std::min<std::int64_t>(tasks, thread_count()));
  if (threads <= 1 || operations < kSerialBelow || omp_in_parallel()) {
    void* scratch = own_scratch.reserve(scratch_bytes);
    for (std::int64_t task = 0; task < tasks; ++task) work(task, scratch);
    return;
  }
  bool out_of_memory = false;
#pragma omp parallel num_threads(threads)
  {
    void* scratch = nullptr;
    try {
      scratch = own_scratch.reserve(scratch_bytes);
    } catch (const std::bad_alloc&) {
#pragma omp atomic write
      out_of_memory = true;
    }
#pragma omp barrier
    if (!out_of_memory) {
#pragma omp for schedule(dynamic, 1)
      for (std::int64_t task = 0; task < tasks; ++task) work(task, scratch);
    }
  }
  if (out_of_memory) throw std::bad_alloc();
}

}  // namespace attn
