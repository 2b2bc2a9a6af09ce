// The metadata of the files that a run leaves tell what was typed.
#pragma once

#include <span>
#include <string>

namespace attn::tool {

void set_command_line(std::span<char* const> arguments);
// The arguments as a shell would take them: quoted where needed, UTF-8.
const std::string& command_line();

}  // namespace attn::tool
