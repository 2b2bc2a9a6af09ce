#include "train/process.hpp"

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

#include <csignal>

#include "common/signals.hpp"

namespace attn::tool {
namespace {

volatile std::sig_atomic_t caught = 0;

extern "C" void stop_after_this_step(int signal) {
  caught = signal;
  end_cleanly_by(signal);
}

}  // namespace

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = stop_after_this_step;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int stopped_by() { return caught; }

void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kept = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kept);
  mallopt(M_TRIM_THRESHOLD, kept);
#endif
}

}  // namespace attn::tool
