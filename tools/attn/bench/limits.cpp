#include "bench/limits.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "attn/tensor.hpp"
#include "common/inputs.hpp"
#include "core/parallel.hpp"
#include "kernels/targets.hpp"

namespace attn::tool {
namespace {

using kernels::Kernels;

constexpr std::int64_t kShares = 512;  // tasks: small ones, so that all threads end together
constexpr std::int64_t kParts = 16;    // of the memory that is read: one a call, each cold when its turn comes again
constexpr double kMuch = 1e12;         // operations, for the planner: never too little for all threads

// A millisecond or more of multiply-adds: short, to fit between other programs' turns.
Work multiply_adds(double (*function)(std::int64_t, float*), Bound bound) {
  constexpr std::int64_t rounds = 1000;
  float sink = 1;
  Work work;
  work.bound = bound;
  work.operations = kShares * function(rounds, &sink);
  work.run = [function] {
    parallel_for(kShares, 0, kMuch, [&](std::int64_t, void*) {
      float one = 1;
      function(rounds, &one);
    });
  };
  return work;
}

// Far more than the last cache holds, but not more than a quarter of the machine's memory.
std::int64_t memory_to_read() {
  double bytes = 512e6;
#ifdef _SC_LEVEL3_CACHE_SIZE
  bytes = std::max(bytes, 4 * static_cast<double>(sysconf(_SC_LEVEL3_CACHE_SIZE)));
#endif
  if (const double memory = machine_memory(); memory > 0) bytes = std::min(bytes, memory / 4);
  return static_cast<std::int64_t>(bytes) / (kParts * kShares * 64) * (kParts * kShares * 64);
}

Work reads(const Kernels& kernel) {
  const std::int64_t floats = memory_to_read() / static_cast<std::int64_t>(sizeof(float));
  const Tensor memory = Tensor::empty({floats});
  const auto bytes = static_cast<std::size_t>(floats / kShares) * sizeof(float);
  parallel_for(kShares, 0, kMuch, [&](std::int64_t share, void*) {  // pages that were never written are not memory
    std::memset(memory.data<float>() + floats / kShares * share, 0, bytes);
  });
  Work work;
  work.bound = Bound::read;
  const std::int64_t part = floats / kParts;
  work.bytes = static_cast<double>(part) * sizeof(float);
  // As short as a call of multiply-adds. All copies of the work, for other numbers of threads, take turns alike.
  work.run = [=, read = kernel.limits->read_memory, turn = std::make_shared<std::int64_t>(0)] {
    const float* const from = memory.data<float>() + part * (++*turn % kParts);
    parallel_for(kShares, 0, kMuch, [&](std::int64_t share, void*) {
      float one = 1;
      read(from + part / kShares * share, part / kShares, &one);
    });
  };
  return work;
}

}  // namespace

std::vector<Limit> machine_limits() {
  const Kernels& kernel = kernels::active();
  std::vector<Limit> limits;
  limits.push_back({{"limit", "multiply-add", "f32"}, multiply_adds(kernel.limits->multiply_add, Bound::f32)});
  if (kernel.multiply_add_bf16) {
    limits.push_back({{"limit", "multiply-add", "bf16"}, multiply_adds(kernel.multiply_add_bf16, Bound::bf16)});
  }
  limits.push_back({{"limit", "read", "f32"}, reads(kernel)});
  return limits;
}

}  // namespace attn::tool
