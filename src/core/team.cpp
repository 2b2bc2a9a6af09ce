#include "core/team.hpp"

#include <algorithm>
#include <chrono>

namespace attn {
namespace {

using Clock = std::chrono::steady_clock;

// A waiting thread looks for so long before it sleeps: as long as what a step does on one thread between two calls, and
// far less than the system gives another program that waits for the core.
constexpr std::chrono::microseconds kAwake{50};

constexpr std::uint64_t kInside = 1, kPlace = 1 << 16, kInsideMask = kPlace - 1, kPlacesMask = kInsideMask << 16;

std::uint32_t call_of(std::uint64_t state) { return static_cast<std::uint32_t>(state >> 32); }

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Whether `holds` does within kAwake.
template <class F>
bool soon(const F& holds) {
  constexpr int looks = 32;  // between two looks at the clock
  const auto end = Clock::now() + kAwake;
  do {
    for (int i = 0; i < looks; ++i) {
      if (holds()) return true;
      relax();
    }
  } while (Clock::now() < end);
  return false;
}

}  // namespace

Team::~Team() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  call_.notify_all();
  for (std::thread& other : others_) other.join();
}

void Team::run(int count, FunctionRef<> body) noexcept {
  const auto others = static_cast<std::size_t>(std::clamp(count - 1, 0, 1 << 12));
  hire(others);
  body_ = &body;
  state_ = (std::uint64_t{++calls_} << 32) | others * kPlace;
  // A thread that goes to sleep says so and looks once more: either it is seen here, or it sees the call.
  if (sleeping_ > 0) {
    const std::lock_guard lock(mutex_);
    call_.notify_all();
  }
  body();
  if ((state_.fetch_and(~kPlacesMask) & kInsideMask) != 0) wait_for_others();
}

// Where the system gives no further thread, the team goes on with those that it has.
void Team::hire(std::size_t others) noexcept {
  try {
    while (others_.size() < others) others_.emplace_back([this] { work(); });
  } catch (const std::exception&) {
  }
}

void Team::work() noexcept {
  for (std::uint32_t last = 0; comes_call(last);) {
    std::uint64_t state = state_;
    last = call_of(state);
    while (call_of(state) == last && (state & kPlacesMask) != 0) {
      if (!state_.compare_exchange_weak(state, state - kPlace + kInside)) continue;
      (*body_)();
      leave();
      break;
    }
  }
}

bool Team::comes_call(std::uint32_t last) {
  const auto came = [&] { return ends_ || call_of(state_) != last; };
  if (!soon(came)) {
    std::unique_lock lock(mutex_);
    ++sleeping_;
    call_.wait(lock, came);
    --sleeping_;
  }
  return !ends_;
}

bool Team::is_empty() const { return (state_ & kInsideMask) == 0; }

void Team::leave() {
  const bool is_last = (state_.fetch_sub(kInside) & (kInsideMask | kPlacesMask)) == kInside;
  if (!is_last || !caller_sleeps_) return;
  const std::lock_guard lock(mutex_);
  empty_.notify_one();
}

// One of them may have lost its core amidst a task: then this one is lent to it.
void Team::wait_for_others() {
  if (soon([this] { return is_empty(); })) return;
  std::unique_lock lock(mutex_);
  caller_sleeps_ = true;
  empty_.wait(lock, [this] { return is_empty(); });
  caller_sleeps_ = false;
}

}  // namespace attn
