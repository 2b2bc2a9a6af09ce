// Completions for shells: verbs, options, their values, and files.
#pragma once

#include <string>

namespace attn::tool {

std::string bash_completions();
std::string zsh_completions();
std::string fish_completions();

}  // namespace attn::tool
