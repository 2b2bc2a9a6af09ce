// Ctrl-C and its like, which end the command and leave nothing behind.
#pragma once

namespace attn::tool {

// From now on SIGINT, SIGTERM, SIGHUP and SIGQUIT end the process as they always do, but first remove the files that it
// has not finished. One that is ignored stays ignored (nohup).
void end_cleanly_by_signals() noexcept;

// The same for one signal, which a verb has handled in its own way until now. Safe in a signal handler.
void end_cleanly_by(int signal) noexcept;

}  // namespace attn::tool
