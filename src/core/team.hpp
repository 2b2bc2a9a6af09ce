// Threads that stay awake from one call to the next, for a step that makes many small ones.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "core/parallel.hpp"

namespace attn {

// The threads that help one other thread, its caller.
class Team {
 public:
  Team() = default;
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Calls body() on this thread, and once on each of at most `count` - 1 others that come while it runs. What is left
  // when this thread returns from it must be in the hands of those who came: who comes late, since another program has
  // its core, is not waited for. body() must not throw.
  void run(int count, FunctionRef<> body) noexcept;

 private:
  void hire(std::size_t others) noexcept;
  void work() noexcept;
  bool comes_call(std::uint32_t last);  // false: the team ends
  bool is_empty() const;
  void leave();
  void wait_for_others();

  std::vector<std::thread> others_;
  const FunctionRef<>* body_ = nullptr;
  std::uint32_t calls_ = 0;
  std::atomic<std::uint64_t> state_{0};  // the call's number, its free places, and who is inside: 32, 16 and 16 bits
  std::atomic<bool> ends_{false}, caller_sleeps_{false};
  std::atomic<int> sleeping_{0};
  std::mutex mutex_;
  std::condition_variable call_, empty_;
};

}  // namespace attn
