// Which names a scope assigns before it reads them. Python makes such a name the scope's own from its beginning on, so
// that until then it is undefined even where the template is given a variable of that name.
#include <set>

#include "jinja/ast.hpp"

namespace attn::jinja {
namespace {

using Kind = Node::Kind;

class Scope {
 public:
  explicit Scope(const Scope* outer) : outer_(outer) {}

  void read(const Nodes& nodes) {
    for (const NodePtr& node : nodes) read(node.get());
  }
  void own(const std::string& name) { seen_.insert(name); }

  std::vector<std::string> unset;

  void read(Node* node) {
    if (!node) return;
    switch (node->kind) {
      case Kind::name:
        if (!knows(node->name)) seen_.insert(node->name);
        return;
      case Kind::set:
        read(node->on.get());
        return assign(*node->parts[0]);
      case Kind::set_block:
        assign(*node->parts[0]);
        return inner(*node, {}, node->body, node->on.get());
      case Kind::condition:
        read(node->on.get());
        ++conditions_;
        read(node->body);
        read(node->otherwise);
        --conditions_;
        return;
      case Kind::loop:
        read(node->on.get());
        inner(*node, {node->parts[0].get()}, node->body, nullptr);
        return inner(*node, {}, node->otherwise, nullptr);
      case Kind::macro:
        store(node->name);
        return inner(*node, pointers(node->parts), node->body, nullptr);
      case Kind::call_block:
        read(node->on.get());
        return inner(*node, pointers(node->parts), node->body, nullptr);
      case Kind::with:
        for (const NodePtr& pair : node->parts) read(pair->on.get());
        return inner(*node, pointers(node->parts), node->body, nullptr);
      case Kind::filter_block:
        read(node->on.get());
        return inner(*node, {}, node->body, nullptr);
      case Kind::scope:
        return inner(*node, {}, node->body, nullptr);
      default:
        read(node->on.get());
        read(node->parts);
    }
  }

 private:
  static std::vector<Node*> pointers(const Nodes& nodes) {
    std::vector<Node*> all;
    for (const NodePtr& node : nodes) all.push_back(node.get());
    return all;
  }

  bool knows(const std::string& name) const {
    for (const Scope* at = this; at; at = at->outer_) {
      if (at->seen_.contains(name)) return true;
    }
    return false;
  }

  void store(const std::string& name) {
    if (conditions_ == 0 && !knows(name)) unset.push_back(name);
    seen_.insert(name);
  }

  void assign(const Node& target) {
    if (target.kind == Kind::name) return store(target.name);
    if (target.kind == Kind::attribute) return read(target.on.get());
    for (const NodePtr& part : target.parts) assign(*part);
  }

  void parameter(const Node& target) {
    if (target.kind == Kind::name || (target.kind == Kind::argument && !target.name.empty())) own(target.name);
    for (const NodePtr& part : target.parts) parameter(*part);
  }

  // A scope of a tag's body is looked at when all of the scope around it has been.
  void inner(Node& node, const std::vector<Node*>& parameters, const Nodes& body, Node* filters) {
    later_.push_back({&node, parameters, &body, filters});
  }

  struct Later {
    Node* node;
    std::vector<Node*> parameters;
    const Nodes* body;
    Node* filters;
  };

 public:
  void finish() {
    for (const Later& one : later_) {
      Scope scope(this);
      for (const Node* parameter_node : one.parameters) scope.parameter(*parameter_node);
      for (const char* const name : {"loop", "caller", "varargs", "kwargs"}) {
        const bool has = name == std::string("loop") ? one.node->kind == Kind::loop : one.node->kind == Kind::macro;
        if (has) scope.own(name);
      }
      for (const Node* parameter_node : one.parameters) scope.read(parameter_node->on.get());
      scope.read(*one.body);
      scope.read(one.filters);
      scope.finish();
      if (one.body == &one.node->body) one.node->unset = std::move(scope.unset);
    }
  }

 private:
  const Scope* outer_;
  std::set<std::string> seen_;
  std::vector<Later> later_;
  int conditions_ = 0;
};

}  // namespace

void find_unset(Node& root) {
  Scope scope(nullptr);
  scope.read(root.body);
  scope.finish();
  root.unset = std::move(scope.unset);
}

}  // namespace attn::jinja
