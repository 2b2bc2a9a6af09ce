// The command `attn`, as a function.
#pragma once

#include <span>

namespace attn::tool {

// The program's name and its arguments; returns the exit code. Throws nothing.
int run_command(std::span<char* const> arguments);

}  // namespace attn::tool
