#include <csignal>

#include "command.hpp"
#include "common/signals.hpp"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is a failed write, handled where it happens
  attn::tool::end_cleanly_by_signals();
  return attn::tool::run_command({argv, static_cast<std::size_t>(argc)});
}
