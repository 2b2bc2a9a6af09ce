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
        return later_.push_back({node, &node->body});
      case Kind::condition:
        read(node->on.get());
        ++conditions_;
        read(node->body);
        read(node->otherwise);
        --conditions_;
        return;
      case Kind::loop:
        read(node->on.get());
        later_.push_back({node, &node->body});
        return later_.push_back({node, &node->otherwise});
      case Kind::macro:
        store(node->name);
        return later_.push_back({node, &node->body});
      case Kind::filter_block:
        read(node->on.get());
        return later_.push_back({node, &node->body});
      case Kind::scope:
        return later_.push_back({node, &node->body});
      default:
        read(node->on.get());
        read(node->parts);
    }
  }

 private:
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
    if (target.kind == Kind::name || (target.kind == Kind::argument && !target.name.empty())) seen_.insert(target.name);
    for (const NodePtr& part : target.parts) parameter(*part);
  }

  struct Later {
    Node* node;
    const Nodes* body;
  };

 public:
  // A scope of a tag's body is looked at when all of the scope around it has been.
  void finish() {
    for (const auto& [node, body] : later_) {
      Scope scope(this);
      if (node->kind == Kind::loop) scope.seen_.insert("loop");
      if ((node->kind == Kind::loop || node->kind == Kind::macro) && body == &node->body) {
        for (const NodePtr& part : node->parts) scope.parameter(*part);
        for (const NodePtr& part : node->parts) scope.read(part->on.get());
      }
      scope.read(*body);
      if (node->kind == Kind::set_block) scope.read(node->on.get());
      scope.finish();
      if (body == &node->body) node->unset = std::move(scope.unset);
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
