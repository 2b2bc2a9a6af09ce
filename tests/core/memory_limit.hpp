// A process that runs out of memory soon.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace attn::test {

// A sanitizer needs all memory for itself: there is no limit then.
constexpr bool limits_memory() {
#if defined(ATTN_SANITIZED) || defined(__SANITIZE_THREAD__)
  return false;
#else
  return true;
#endif
}

// The process may take so many megabytes more than it has while this lives.
class MemoryLimit {
 public:
  explicit MemoryLimit(rlim_t megabytes) {
    getrlimit(RLIMIT_AS, &before_);
    std::ifstream pages("/proc/self/statm");
    rlim_t held = 0;
    if (!limits_memory() || !(pages >> held)) return;
    const rlimit limit{held * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (megabytes << 20), before_.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
  }
  ~MemoryLimit() { setrlimit(RLIMIT_AS, &before_); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace attn::test
