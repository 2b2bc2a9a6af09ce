// A run asks these of its process: to end between two steps, and to keep its memory.
#pragma once

namespace attn::tool {

// From here on Ctrl-C and SIGTERM are remembered by stopped_by(); a second one ends the process at once.
void catch_signals();
int stopped_by();  // the signal, or 0

// A step allocates and frees the same large tensors again and again. Handed back to the system in between, each of
// their pages costs a fault.
void keep_freed_memory();

}  // namespace attn::tool
