#include "core/memory.hpp"

#include <gtest/gtest.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace attn {
namespace {

constexpr std::size_t kLarge = std::size_t{3} << 20;

TEST(Memory, IsKeptForTheNextOfItsSize) {
  const KeepMemory keep;
  const auto held = allocate(2 * kLarge);
  const void* first = allocate(kLarge).get();
  const auto other = allocate(kLarge / 2), same = allocate(kLarge);
  EXPECT_EQ(same.get(), first);
  EXPECT_NE(other.get(), first);
}

TEST(Memory, IsAlignedAndCanBeWritten) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, kLarge, 4 * kLarge}) {
    const auto memory = allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.get()) % 64, 0u);
    for (std::size_t i = 0; i < bytes; i += 4096) static_cast<char*>(memory.get())[i] = 1;
  }
}

TEST(Memory, OutlivesItsKeeper) {
  std::shared_ptr<void> memory;
  {
    const KeepMemory keep;
    memory = allocate(kLarge);
    allocate(kLarge);
  }
  char* last = static_cast<char*>(memory.get()) + kLarge - 1;
  *last = 1;
  EXPECT_EQ(*last, 1) << "and a sanitizer has nothing to say";
}

// A child has but the thread that forked: what the others held at that moment must be free.
TEST(Memory, IsThereInAForkedChildWhileOtherThreadsTakeIt) {
  std::atomic<bool> done = false;
  std::vector<std::thread> others;
  for (std::size_t i = 1; i <= 3; ++i) {
    others.emplace_back([&done, i] {
      while (!done) allocate(i * kLarge + kLarge);
    });
  }
  constexpr unsigned seconds = 20;
  int status = 0;
  for (int forks = 0; forks < 200 && status == 0; ++forks) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(seconds);  // ends it when it hangs
      allocate(kLarge);
      _exit(0);
    }
    ASSERT_EQ(waitpid(child, &status, 0), child);
  }
  done = true;
  for (std::thread& other : others) other.join();
  EXPECT_EQ(status, 0);
}

#if defined(__linux__)
// The thread that first writes a page decides where it is: nobody but the tasks may touch a large result.
TEST(Memory, NewPagesAreLeftToWhoeverWritesThemFirst) {
  constexpr std::size_t bytes = (std::size_t{96} << 20) + 8192;  // that nothing before was as large as
  const auto memory = allocate(bytes);
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE)),
             begin = reinterpret_cast<std::size_t>(memory.get());
  const auto there = [&] {
    std::vector<unsigned char> pages(bytes / page);
    EXPECT_EQ(mincore(reinterpret_cast<void*>(begin / page * page), pages.size() * page, pages.data()), 0);
    return std::count_if(pages.begin(), pages.end(), [](unsigned char state) { return (state & 1) != 0; });
  };
  const std::ptrdiff_t before = there();
  // malloc writes its own words before the memory: into one page, which may be a huge one of 2 MB.
  EXPECT_LE(before, static_cast<std::ptrdiff_t>((std::size_t{2} << 20) / page));
  static_cast<char*>(memory.get())[bytes / 2] = 1;
  EXPECT_GT(there(), before);
}
#endif

}  // namespace
}  // namespace attn
