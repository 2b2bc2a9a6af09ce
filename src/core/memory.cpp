#include "core/memory.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <new>

#if !defined(__wasi__)
#include <pthread.h>

#include <mutex>
#endif

namespace attn {
namespace {

#if defined(__wasi__)  // one thread
struct Mutex {};
struct Lock {
  explicit Lock(Mutex&) {}
};
#else
using Mutex = std::mutex;
using Lock = std::lock_guard<Mutex>;
#endif

constexpr std::size_t kAlignment = 64, kLargePage = std::size_t{1} << 21;
constexpr std::size_t kWorthKeeping = std::size_t{1} << 20, kAlwaysKept = std::size_t{256} << 20;

std::size_t alignment_of(std::size_t bytes) { return bytes >= 2 * kLargePage ? kLargePage : kAlignment; }

// Much memory comes in large pages where the system has them to give: one fault for each, and not 512 times as many.
void* take_new(std::size_t bytes) {
  const std::size_t alignment = alignment_of(bytes);
  void* memory = ::operator new (bytes, std::align_val_t{alignment}, std::nothrow);  // sanitizers abort in the other
  if (memory == nullptr) throw OutOfMemory(bytes, "numbers");
#if defined(__linux__)
  if (alignment == kLargePage) madvise(memory, bytes, MADV_HUGEPAGE);  // advice: without it all works as well
#endif
  return memory;
}

#if defined(__SANITIZE_ADDRESS__)  // g++
constexpr bool kWatched = true;
#elif defined(__has_feature)  // clang
constexpr bool kWatched = __has_feature(address_sanitizer);
#else
constexpr bool kWatched = false;
#endif

// A small tensor's memory lies beside its count of owners: one allocation, and of the kind that malloc is fastest at.
// The address sanitizer watches the ends of allocations, so there each tensor has one of its own.
constexpr std::size_t kSmall = kWatched ? 0 : 896;

std::shared_ptr<void> take_small(std::size_t bytes) {
  const auto whole = std::make_shared_for_overwrite<std::byte[]>(bytes + kAlignment - 1);
  void* memory = whole.get();
  std::size_t room = bytes + kAlignment - 1;
  return {whole, std::align(kAlignment, bytes, memory, room)};
}

void give_back(void* memory, std::size_t bytes) { ::operator delete (memory, std::align_val_t{alignment_of(bytes)}); }

class Kept {
 public:
  void* take(std::size_t bytes) {
    const Lock lock(mutex_);
    void* memory = nullptr;
    if (const auto found = blocks_.find(bytes); found != blocks_.end()) {
      memory = remove(found);
    } else {
      memory = take_new_or_less(bytes);
    }
    used_ += bytes;
    most_ = std::max(most_, used_);
    trim();
    return memory;
  }

  void give(void* memory, std::size_t bytes) {
    const Lock lock(mutex_);
    used_ -= bytes;
    if (bytes > limit()) return give_back(memory, bytes);
    try {
      blocks_.emplace(bytes, memory);
    } catch (const std::bad_alloc&) {
      return give_back(memory, bytes);
    }
    waiting_ += bytes;
    trim();
  }

  void begin() {
    const Lock lock(mutex_);
    if (keepers_++ == 0) most_ = used_;
  }

  void end() {
    const Lock lock(mutex_);
    --keepers_;
    trim();
  }

  void give_back_all() {
    const Lock lock(mutex_);
    while (!blocks_.empty()) give_back_one();
    most_ = used_;
  }

  Mutex& mutex() { return mutex_; }

 private:
  using Blocks = std::multimap<std::size_t, void*>;

  // Where there is no more to be had, what waits is given back first.
  void* take_new_or_less(std::size_t bytes) {
    try {
      return take_new(bytes);
    } catch (const std::bad_alloc&) {
      if (blocks_.empty()) throw;
    }
    while (!blocks_.empty()) give_back_one();
    return take_new(bytes);
  }

  void* remove(Blocks::iterator block) {
    void* memory = block->second;
    waiting_ -= block->first;
    blocks_.erase(block);
    return memory;
  }

  // Returns how many bytes of freed blocks may wait to be used again.
  std::size_t limit() const {
    const std::size_t most = most_ + most_ / 2;
    return keepers_ == 0 || most < used_ + kAlwaysKept ? kAlwaysKept : most - used_;
  }

  void trim() {
    while (waiting_ > limit()) give_back_one();
  }

  void give_back_one() {
    const auto block = blocks_.begin();
    const std::size_t bytes = block->first;
    give_back(remove(block), bytes);
  }

  Mutex mutex_;
  Blocks blocks_;
  std::size_t used_ = 0, most_ = 0, waiting_ = 0;  // bytes
  int keepers_ = 0;
};

Kept& kept() {
  static Kept& blocks = *new Kept;  // outlives every tensor
  return blocks;
}

#if !defined(__wasi__)
// No other thread may be amidst a change at a fork(): the child has that state for good, and not the thread.
[[maybe_unused]] const int registered =
    pthread_atfork([] { kept().mutex().lock(); }, [] { kept().mutex().unlock(); }, [] { kept().mutex().unlock(); });
#endif

}  // namespace

OutOfMemory::OutOfMemory(std::size_t bytes, std::string_view what_for) noexcept {
  constexpr double giga = 1e9;
  std::snprintf(text_.data(), text_.size(), "[memory] expected %.3g GB (%zu bytes) for %.*s; found less",
                static_cast<double>(bytes) / giga, bytes, static_cast<int>(what_for.size()), what_for.data());
}

std::shared_ptr<void> allocate(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(PTRDIFF_MAX) - kLargePage) throw OutOfMemory(bytes, "numbers");
  bytes = std::max(bytes, std::size_t{1});
  if (bytes <= kSmall) return take_small(bytes);
  if (bytes < kWorthKeeping) return {take_new(bytes), [bytes](void* p) { give_back(p, bytes); }};
  return {kept().take(bytes), [bytes](void* p) { kept().give(p, bytes); }};
}

void give_back_kept_memory() { kept().give_back_all(); }

KeepMemory::KeepMemory() { kept().begin(); }
KeepMemory::~KeepMemory() { kept().end(); }

}  // namespace attn
