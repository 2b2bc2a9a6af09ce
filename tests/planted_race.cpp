// Two tasks add to one number at the same time: the thread sanitizer must say so. Tests of threads that find nothing
// mean something only while this one does.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>

#include "core/parallel.hpp"
#include "core/threads.hpp"

int main() {
  const attn::test::Threads threads(2);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::atomic<int> begun = 0;  // relaxed: it orders nothing
  double sum = 0;
  attn::parallel_for(2, 0, 1e9, [&](std::int64_t, void*) {
    begun.fetch_add(1, std::memory_order_relaxed);
    while (begun.load(std::memory_order_relaxed) < 2 && std::chrono::steady_clock::now() < end) {
    }
    for (int i = 0; i < 1000; ++i) sum += i;
  });
  std::printf("twice the sum of 1000 numbers: %g\n", sum);
}
