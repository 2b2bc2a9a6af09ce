#include "jinja/interpreter.hpp"

#include <algorithm>

#include "jinja/builtins.hpp"
#include "jinja/lexer.hpp"
#include "jinja/strings.hpp"

namespace attn::jinja {
namespace {

using Kind = Node::Kind;

constexpr int kDeepest = 1000;

enum class Flow { on, leave, next };

// Names of a scope: the template, a round of a loop, a macro, a block.
struct Frame : std::enable_shared_from_this<Frame> {
  explicit Frame(std::shared_ptr<const Frame> in) : outer(std::move(in)) {}
  std::shared_ptr<const Frame> outer;
  std::map<std::string, Value, std::less<>> names;
};

std::shared_ptr<Frame> inside(Frame& frame) { return std::make_shared<Frame>(frame.shared_from_this()); }

class Interpreter {
 public:
  Interpreter(const std::map<std::string, Value>& variables, const std::optional<std::tm>& now)
      : variables_(variables), now_(now) {}
  ~Interpreter() {  // namespaces may hold themselves
    for (const auto& space : spaces_) space->values.clear();
  }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string run(const Node& tree) {
    const auto root = std::make_shared<Frame>(nullptr);
    std::string out;
    hide(tree, *root);
    execute(tree.body, *root, out);
    return out;
  }

 private:
  // ---- statements

  Flow execute(const Nodes& all, Frame& frame, std::string& out) {
    for (const NodePtr& node : all) {
      if (const Flow flow = execute(*node, frame, out); flow != Flow::on) return flow;
    }
    return Flow::on;
  }

  Flow execute(const Node& node, Frame& frame, std::string& out) {
    const Deeper deeper(depth_, kDeepest, "macros and expressions");
    charge(32);
    switch (node.kind) {
      case Kind::data:
        write(*node.value.text(), out);
        return Flow::on;
      case Kind::print:
        write(shown(evaluate(*node.on, frame)), out);
        return Flow::on;
      case Kind::set:
        assign(*node.parts[0], evaluate(*node.on, frame), frame);
        return Flow::on;
      case Kind::condition:
        return execute(truth(evaluate(*node.on, frame)) ? node.body : node.otherwise, frame, out);
      case Kind::loop:
        return loop(node, evaluate(*node.on, frame), frame, out);
      case Kind::macro:
        frame.names.insert_or_assign(node.name, macro(node, frame));
        return Flow::on;
      case Kind::leave:
        return Flow::leave;
      case Kind::next:
        return Flow::next;
      default:
        return block(node, frame, out);
    }
  }

  // A statement whose body has a scope of its own.
  Flow block(const Node& node, Frame& frame, std::string& out) {
    const auto scope = inside(frame);
    hide(node, *scope);
    if (node.kind == Kind::scope) return execute(node.body, *scope, out);
    std::string inner;
    if (const Flow flow = execute(node.body, *scope, inner); flow != Flow::on) return flow;
    Value value = text(std::move(inner));
    if (node.on) value = filter(*node.on, *scope, &value);
    if (node.kind == Kind::filter_block) {
      write(shown(value), out);
    } else {
      assign(*node.parts[0], std::move(value), frame);
    }
    return Flow::on;
  }

  static void write(const std::string& text, std::string& out) {
    charge(text.size());
    out += text;
  }

  void assign(const Node& target, Value value, Frame& frame) {
    if (target.kind == Kind::name) {
      frame.names.insert_or_assign(target.name, std::move(value));
    } else if (target.kind == Kind::attribute) {
      const Value space = evaluate(*target.on, frame);
      const auto* held = space.get<std::shared_ptr<Namespace>>();
      if (!held) failed_at(target.line, "an attribute set of what is no namespace");
      if (target.name.starts_with('_')) failed_at(target.line, "a namespace with the name " + target.name);
      (*held)->values.insert_or_assign(target.name, std::move(value));
    } else {
      List items = items_of(value);
      if (items.size() != target.parts.size()) failed_at(target.line, "other than one value for each name");
      for (std::size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], std::move(items[i]), frame);
    }
  }

  Flow loop(const Node& node, const Value& over, Frame& frame, std::string& out) {
    auto state = std::make_shared<Loop>();
    for (Value& item : items_of(over)) {
      if (node.when) {
        const auto scope = inside(frame);
        assign(*node.parts[0], item, *scope);
        if (!truth(evaluate(*node.when, *scope))) continue;
      }
      state->items.push_back(std::move(item));
    }
    for (; state->at < state->items.size(); ++state->at) {
      const auto scope = inside(frame);
      assign(*node.parts[0], state->items[state->at], *scope);
      scope->names.insert_or_assign("loop", Value{state});
      hide(node, *scope);
      if (execute(node.body, *scope, out) == Flow::leave) break;
    }
    if (!state->items.empty() || node.otherwise.empty()) return Flow::on;
    return execute(node.otherwise, *inside(frame), out);
  }

  void hide(const Node& node, Frame& frame) const {
    for (const std::string& name : node.unset) frame.names.emplace(name, undefined("'" + name + "' is undefined"));
  }

  Value macro(const Node& node, Frame& frame) {
    return function(node.name, [this, &node, weak = frame.weak_from_this()](Arguments& given) {
      const auto around = weak.lock();
      if (!around) unsupported("the macro " + node.name + " outside the block that defines it");
      const Deeper deeper(depth_, kDeepest, "macros and expressions");
      const auto scope = std::make_shared<Frame>(around);
      bind(node, given, *scope);
      hide(node, *scope);
      std::string out;
      execute(node.body, *scope, out);
      return text(std::move(out));
    });
  }

  void bind(const Node& node, Arguments& given, Frame& scope) {
    std::vector<std::optional<Value>> values(given.values.begin(), given.values.end());
    if (values.size() > node.parts.size()) failed("too many arguments of the macro " + node.name);
    values.resize(node.parts.size());
    for (auto& [name, value] : given.named) {
      std::size_t at = 0;
      while (at < values.size() && node.parts[at]->name != name) ++at;
      if (at == values.size() || values[at]) failed("the argument " + name + " of the macro " + node.name);
      values[at] = std::move(value);
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Node& parameter = *node.parts[i];
      Value value = values[i]      ? std::move(*values[i])
                    : parameter.on ? evaluate(*parameter.on, scope)
                                   : undefined("parameter '" + parameter.name + "' was not provided");
      scope.names.insert_or_assign(parameter.name, std::move(value));
    }
  }

  // ---- expressions

  Value evaluate(const Node& node, Frame& frame) {
    const Deeper deeper(depth_, kDeepest, "macros and expressions");
    charge(32);
    switch (node.kind) {
      case Kind::constant:
        return node.value;
      case Kind::name:
        return named(node.name, frame);
      case Kind::list:
      case Kind::tuple:
        return list(evaluated(node.parts, frame),
                    node.kind == Kind::list ? Sequence::Kind::list : Sequence::Kind::tuple);
      case Kind::dict:
        return dict_of(node, frame);
      case Kind::attribute:
      case Kind::item:
        return read(node, evaluate(*node.on, frame), frame);
      case Kind::call:
        return call(node, frame);
      case Kind::filter:
        return filter(node, frame, nullptr);
      case Kind::test:
        return boolean(passes(node.name, evaluate(*node.on, frame), arguments(node.parts, frame)));
      case Kind::unary:
        return unary(node, evaluate(*node.on, frame));
      case Kind::binary:
        return binary(node, frame);
      case Kind::compare:
        return compare(node, frame);
      case Kind::join: {
        std::string all;
        for (const NodePtr& part : node.parts) all += shown(evaluate(*part, frame));
        return text(std::move(all));
      }
      default:
        return chosen(node, frame);
    }
  }

  Value chosen(const Node& node, Frame& frame) {
    Value first = evaluate(*node.parts[0], frame);
    const bool yes = truth(first);
    if (node.kind == Kind::both) return yes ? evaluate(*node.parts[1], frame) : first;
    if (node.kind == Kind::either) return yes ? first : evaluate(*node.parts[1], frame);
    if (yes) return evaluate(*node.parts[1], frame);
    if (node.parts.size() == 3) return evaluate(*node.parts[2], frame);
    return undefined("the inline if-expression in line " + std::to_string(node.line) + " evaluated to false");
  }

  Value named(const std::string& name, const Frame& frame) const {
    for (const Frame* at = &frame; at; at = at->outer.get()) {
      if (const auto found = at->names.find(name); found != at->names.end()) return found->second;
    }
    if (const auto found = variables_.find(name); found != variables_.end()) return found->second;
    if (const auto found = global(name, now_)) return *found;
    return undefined("'" + name + "' is undefined");
  }

  List evaluated(const Nodes& nodes, Frame& frame) {
    List all;
    for (const NodePtr& node : nodes) all.push_back(evaluate(*node, frame));
    return all;
  }

  Value dict_of(const Node& node, Frame& frame) {
    Dict all;
    for (const NodePtr& pair : node.parts) {
      Value key = evaluate(*pair->parts[0], frame);
      all.set(std::move(key), evaluate(*pair->parts[1], frame));
    }
    return dict(std::move(all));
  }

  Value read(const Node& node, const Value& on, Frame& frame) {
    if (node.kind == Kind::attribute) return attribute(on, node.name);
    const Node& key = *node.parts[0];
    if (key.kind != Kind::slice) return item(on, evaluate(key, frame));
    const auto part = [&](std::size_t i) { return key.parts[i] ? evaluate(*key.parts[i], frame) : none(); };
    const Value begin = part(0), end = part(1);
    return sliced(on, begin, end, part(2));
  }

  Value unary(const Node& node, const Value& value) const {
    if (node.name == "not") return boolean(!truth(value));
    const Value minus = negative(value);
    return node.name == "-" ? minus : negative(minus);
  }

  Value binary(const Node& node, Frame& frame) {
    const Value left = evaluate(*node.parts[0], frame);
    const char sign = node.name == "//" ? '|' : node.name[0];
    return computed(sign, left, evaluate(*node.parts[1], frame));
  }

  Value compare(const Node& node, Frame& frame) {
    Value left = evaluate(*node.on, frame);
    for (const NodePtr& part : node.parts) {
      Value right = evaluate(*part->on, frame);
      if (!passes(part->name, left, {{right}, {}})) return boolean(false);
      left = std::move(right);
    }
    return boolean(true);
  }

  Arguments arguments(const Nodes& nodes, Frame& frame) {
    Arguments all;
    for (const NodePtr& node : nodes) {
      Value value = evaluate(*node->on, frame);
      if (node->name.empty()) {
        all.values.push_back(std::move(value));
        continue;
      }
      const bool twice = std::ranges::any_of(all.named, [&](const auto& pair) { return pair.first == node->name; });
      if (twice) failed("the argument " + node->name + " twice");
      all.named.emplace_back(node->name, std::move(value));
    }
    return all;
  }

  Value call(const Node& node, Frame& frame) {
    const Value on = evaluate(*node.on, frame);
    Arguments given = arguments(node.parts, frame);
    if (const auto* held = on.get<std::shared_ptr<const Function>>()) return keep((*held)->call(given));
    if (const Undefined* u = on.get<Undefined>()) failed_at(node.line, *u->why);
    failed_at(node.line, "a call of a " + kind_of(on));
  }

  Value keep(Value value) {
    if (const auto* space = value.get<std::shared_ptr<Namespace>>()) spaces_.push_back(*space);
    return value;
  }

  // `on`: what the filters of a block begin with.
  Value filter(const Node& node, Frame& frame, const Value* on) {
    const bool innermost = !node.on;
    const bool filters_block = on && !innermost && node.on->kind == Kind::filter;
    const Value value = innermost ? *on : filters_block ? filter(*node.on, frame, on) : evaluate(*node.on, frame);
    return filtered(node.name, value, arguments(node.parts, frame));
  }

  const std::map<std::string, Value>& variables_;
  const std::optional<std::tm>& now_;
  std::vector<std::shared_ptr<Namespace>> spaces_;
  int depth_ = 0;
};

}  // namespace

std::string render(const Node& tree, const std::map<std::string, Value>& variables, const std::optional<std::tm>& now) {
  const Budget budget;
  return Interpreter(variables, now).run(tree);
}

}  // namespace attn::jinja
