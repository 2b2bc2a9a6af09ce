// A template as a tree.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.hpp"

namespace attn::jinja {

struct Node;
using NodePtr = std::unique_ptr<Node>;
using Nodes = std::vector<NodePtr>;

struct Node {
  enum class Kind {
    // expressions; those named after a sign have it in `name`
    constant,
    name,
    list,
    tuple,
    dict,
    attribute,
    item,
    slice,
    call,
    filter,
    test,
    unary,
    binary,
    compare,
    both,
    either,
    choice,
    join,
    // arguments: by name where that is not empty
    argument,
    // statements
    data,
    print,
    set,
    set_block,
    condition,
    loop,
    macro,
    filter_block,
    scope,
    leave,
    next
  } kind = Kind::scope;
  std::size_t line = 0;
  std::string name{};  // of what is called, read, or compared by
  Value value{};       // of a constant
  NodePtr on{};        // what it acts on; null for a filter of a block
  Nodes parts{};       // operands, arguments, targets
  Nodes body{}, otherwise{};
  NodePtr when{};                    // a loop's condition
  std::vector<std::string> unset{};  // names that a scope assigns before it reads them
};

// A scope of the whole template. Throws Error, also for what Jinja has and this interpreter lacks.
Node parse(std::string_view source);
void find_unset(Node& root);  // names each scope's `unset`, as parse() does

}  // namespace attn::jinja
