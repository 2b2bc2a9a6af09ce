// Renders a template's tree.
#pragma once

#include <ctime>
#include <map>
#include <optional>
#include <string>

#include "jinja/ast.hpp"

namespace attn::jinja {

// `variables`: what the template reads by name. `now`: what strftime_now() tells; empty for the clock's time. Throws
// Error where Jinja fails, where the template uses what is lacking here, and past the limits of work and of depth.
std::string render(const Node& tree, const std::map<std::string, Value>& variables, const std::optional<std::tm>& now);

}  // namespace attn::jinja
