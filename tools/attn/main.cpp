#include <fcntl.h>
#include <unistd.h>

#include <csignal>

#include "command.hpp"
#include "common/signals.hpp"

namespace {

// A standard stream that is closed (attn … >&-) gets a descriptor that fails as a closed one does. Else the next file
// that is opened would take its number, and get what is meant for it.
void hold_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) < 0) static_cast<void>(open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

}  // namespace

int main(int argc, char** argv) {
  hold_closed_streams();
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is a failed write, handled where it happens
  attn::tool::end_cleanly_by_signals();
  return attn::tool::run_command({argv, static_cast<std::size_t>(argc)});
}
