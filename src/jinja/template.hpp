// A template as a tree, and what renders it.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.hpp"

namespace attn::jinja {

struct Node;
using Nodes = std::vector<Node>;

// The names that a scope reads or assigns, and of those the ones that it assigns before it reads them. Python makes
// such a name the scope's own from its beginning on, so that until then it is undefined even where the template is
// given a variable of that name.
struct Names {
  std::set<std::string> seen{};
  std::vector<std::string> unset{};
};

struct Node {
  enum class Kind {
    nothing,  // stands for a part that is not there
    // expressions; those named after a sign have it in `name`
    constant,
    name,
    list,
    tuple,
    dict,       // keys and values in turns
    attribute,  // on
    item,       // on, key
    slice,      // begin, end, step
    call,       // on, arguments
    filter,     // on, arguments
    test,       // on, arguments
    negation,
    unary,
    binary,
    compare,   // first, arguments named after signs
    choice,    // condition, value, other value
    argument,  // by name where that is not empty; * and ** are a list and a dict of arguments
    // statements
    print,
    set,        // target, value
    set_block,  // target, value of the block's text, which is the name ""
    condition,
    loop,        // target, iterable, condition
    macro,       // parameters, in `value` whether it reads the name caller
    call_block,  // parameters, in `otherwise` the call, which is given the block as a macro
    filter_block,
    scope,
    leave,
    next
  } kind = Kind::nothing;
  std::size_t line = 0;
  std::string name{};  // of what is called, read, or compared by
  Nodes parts{};
  Value value{};  // of a constant
  Nodes body{}, otherwise{};
  std::unique_ptr<Names> names{};  // of a body that is a scope
};

// A scope of the whole template. Throws Error, also for what Jinja has and this interpreter lacks.
Node parse(std::string_view source);

// `variables`: what the template reads by name. `now`: what strftime_now() tells; empty for the clock's time. Throws
// Error where Jinja fails, where the template uses what is lacking here, and past the limits of work and of depth.
std::string render(const Node& tree, const std::map<std::string, Value>& variables, const std::optional<std::tm>& now);

[[noreturn]] void failed_at(std::size_t line, const std::string& why);

// Counts how deep something goes into itself.
struct Deeper {
  Deeper(int& counted, int most, const char* what) : depth(counted) {
    if (depth >= most) failed(std::string(what) + " in one another, more than " + std::to_string(most) + " deep");
    ++depth;
  }
  ~Deeper() { --depth; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  int& depth;
};

}  // namespace attn::jinja
