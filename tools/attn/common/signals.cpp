#include "common/signals.hpp"

#include <csignal>

#include "io/temporary_name.hpp"

namespace attn::tool {
namespace {

// The system hands such a signal to the main thread, which is the one that writes files: no file is on its way to a
// name while this runs.
extern "C" void remove_files_and_end(int signal) {
  io::remove_temporary_files();
  std::raise(signal);  // SA_RESETHAND: it ends the process when this returns
}

}  // namespace

void end_cleanly_by(int signal) noexcept {
  struct sigaction action {};
  action.sa_handler = remove_files_and_end;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

void end_cleanly_by_signals() noexcept {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) end_cleanly_by(signal);
  }
}

}  // namespace attn::tool
