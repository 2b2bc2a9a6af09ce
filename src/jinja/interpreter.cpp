#include <algorithm>

#include "jinja/builtins.hpp"
#include "jinja/strings.hpp"
#include "jinja/template.hpp"

namespace attn::jinja {
namespace {

constexpr int kDeepest = 1000;

enum class Flow { on, leave, next };

// Names of a scope: the template, a round of a loop, a macro, a block.
struct Frame : std::enable_shared_from_this<Frame> {
  explicit Frame(std::shared_ptr<const Frame> in) : outer(std::move(in)) {}
  std::shared_ptr<const Frame> outer;
  std::map<std::string, Value, std::less<>> names;
};

class Interpreter {
  using Kind = Node::Kind;

 public:
  Interpreter(const std::map<std::string, Value>& variables, const std::optional<std::tm>& now)
      : variables_(variables), now_(now) {}
  ~Interpreter() {  // namespaces may hold themselves
    for (const auto& space : spaces_) space->values = {};
  }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string run(const Node& tree) {
    std::string out;
    execute(tree.body, *inside(nullptr, tree), out);
    return out;
  }

 private:
  Deeper deeper() { return {depth_, kDeepest, "macros and expressions"}; }

  // ---- statements

  Flow execute(const Nodes& all, Frame& frame, std::string& out) {
    for (const Node& node : all) {
      if (const Flow flow = execute(node, frame, out); flow != Flow::on) return flow;
    }
    return Flow::on;
  }

  Flow execute(const Node& node, Frame& frame, std::string& out) {
    const Deeper deep = deeper();
    charge(32);
    switch (node.kind) {
      case Kind::print:
        write(evaluate(node.parts[0], frame), out);
        return Flow::on;
      case Kind::set:
        assign(node.parts[0], evaluate(node.parts[1], frame), frame);
        return Flow::on;
      case Kind::condition:
        return execute(truth(evaluate(node.parts[0], frame)) ? node.body : node.otherwise, frame, out);
      case Kind::loop:
        return loop(node, frame, out);
      case Kind::macro:
        frame.names.insert_or_assign(node.name, macro(node, frame));
        return Flow::on;
      case Kind::call_block:
        write(call(node.otherwise[0], frame, macro(node, frame)), out);
        return Flow::on;
      case Kind::leave:
        return Flow::leave;
      case Kind::next:
        return Flow::next;
      case Kind::scope:
        return execute(node.body, *inside(frame.shared_from_this(), node), out);
      default:
        return block(node, frame, out);
    }
  }

  static void write(const Value& value, std::string& out) {
    const std::string* given = value.text();
    const std::string made = given ? "" : shown(value);
    charge(given ? given->size() : made.size());
    out += given ? *given : made;
  }

  // Renders a block, and filters, writes or assigns its text.
  Flow block(const Node& node, Frame& frame, std::string& out) {
    const auto scope = inside(frame.shared_from_this(), node);
    std::string inner;
    if (const Flow flow = execute(node.body, *scope, inner); flow != Flow::on) return flow;
    scope->names.insert_or_assign("", text(inner));
    const Value value = evaluate(node.parts.back(), *scope);
    if (node.kind == Kind::filter_block) {
      write(value, out);
    } else {
      assign(node.parts[0], value, frame);
    }
    return Flow::on;
  }

  void assign(const Node& target, Value value, Frame& frame) {
    if (target.kind == Kind::name) {
      frame.names.insert_or_assign(target.name, std::move(value));
    } else if (target.kind == Kind::attribute) {
      const Value on = evaluate(target.parts[0], frame);
      if (!on.space()) failed_at(target.line, "an attribute set of what is no namespace");
      if (target.name.starts_with('_')) failed_at(target.line, "a namespace with the name " + target.name);
      on.space()->values.set(text(target.name), std::move(value));
    } else {
      List items = items_of(value);
      if (items.size() != target.parts.size()) failed_at(target.line, "other than one value for each name");
      for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], std::move(items[i]), frame);
    }
  }

  Flow loop(const Node& node, Frame& frame, std::string& out) {
    const auto state = std::make_shared<Loop>();
    for (Value& item : items_of(evaluate(node.parts[1], frame))) {
      if (node.parts[2].kind != Kind::nothing) {
        const auto scope = inside(frame.shared_from_this());
        assign(node.parts[0], item, *scope);
        if (!truth(evaluate(node.parts[2], *scope))) continue;
      }
      state->items.push_back(std::move(item));
    }
    for (; state->at < state->items.size(); ++state->at) {
      const auto scope = inside(frame.shared_from_this(), node);
      assign(node.parts[0], state->items[state->at], *scope);
      scope->names.insert_or_assign("loop", Value{state});
      if (execute(node.body, *scope, out) == Flow::leave) break;
    }
    return state->items.empty() ? execute(node.otherwise, frame, out) : Flow::on;
  }

  static std::shared_ptr<Frame> inside(std::shared_ptr<const Frame> outer, const Node& scope = {}) {
    const auto frame = std::make_shared<Frame>(std::move(outer));
    if (!scope.names) return frame;
    charge(64 * scope.names->unset.size());
    for (const std::string& name : scope.names->unset) frame->names[name] = undefined("'" + name + "' is undefined");
    return frame;
  }

  Value macro(const Node& node, Frame& frame) {
    std::string parameters;
    for (const Node& part : node.parts) parameters += (parameters.empty() ? "" : " ") + part.name + "?";
    return function(node.name, [this, &node, parameters, weak = frame.weak_from_this()](Arguments& given) {
      const auto around = weak.lock();
      if (!around) unsupported("the macro " + node.name + " outside the block that defines it");
      const Deeper deep = deeper();
      const auto scope = inside(around, node);
      if (truth(node.value)) scope->names["caller"] = caller_of(given);
      const Call made = bound(parameters, none(), given, "the arguments of the macro " + node.name);
      for (std::size_t i = 0; i < node.parts.size(); ++i) {
        const Node& parameter = node.parts[i];
        scope->names[parameter.name] = made.slots[i] ? made[i]
                                       : parameter.parts.empty()
                                           ? undefined("parameter '" + parameter.name + "' was not provided")
                                           : evaluate(parameter.parts[0], *scope);
      }
      std::string out;
      execute(node.body, *scope, out);
      return text(out);
    });
  }

  // Takes `caller` out of what a macro is given: the block of the tag call that calls it.
  static Value caller_of(Arguments& given) {
    const auto at = std::ranges::find(given.named, "caller", [](const auto& entry) { return entry.first; });
    if (at == given.named.end()) return undefined("no caller is defined");
    Value caller = std::move(at->second);
    given.named.erase(at);
    return caller;
  }

  // ---- expressions

  Value evaluate(const Node& node, Frame& frame) {
    const Deeper deep = deeper();
    charge(32);
    const auto part = [&](std::size_t i) { return evaluate(node.parts[i], frame); };
    switch (node.kind) {
      case Kind::nothing:
        return none();
      case Kind::constant:
        return node.value;
      case Kind::name:
        return named(node.name, frame);
      case Kind::list:
      case Kind::tuple:
        return list(evaluated(node.parts, frame),
                    node.kind == Kind::list ? Sequence::Kind::list : Sequence::Kind::tuple);
      case Kind::dict:
        return dict_of(evaluated(node.parts, frame));
      case Kind::attribute:
        return attribute(part(0), node.name);
      case Kind::item:
        return item_of(node, frame);
      case Kind::call:
        return call(node, frame);
      case Kind::filter:
        return filtered(node.name, part(0), arguments(node.parts, frame));
      case Kind::test:
        return boolean(passes(node.name, part(0), arguments(node.parts, frame)));
      case Kind::negation:
        return boolean(!truth(part(0)));
      case Kind::unary:
        return signed_number(node.name, part(0));
      case Kind::compare:
        return compare(node, frame);
      case Kind::choice:
        if (truth(part(0))) return part(1);
        if (node.parts[2].kind != Kind::nothing) return part(2);
        return undefined("the inline if-expression in line " + std::to_string(node.line) + " evaluated to false");
      default:
        return binary(node, part(0), frame);
    }
  }

  Value named(const std::string& name, const Frame& frame) const {
    for (const Frame* at = &frame; at; at = at->outer.get()) {
      if (const auto found = at->names.find(name); found != at->names.end()) return found->second;
    }
    if (const auto found = variables_.find(name); found != variables_.end()) return found->second;
    return global(name, now_).value_or(undefined("'" + name + "' is undefined"));
  }

  List evaluated(const Nodes& nodes, Frame& frame) {
    List all;
    for (const Node& node : nodes) all.push_back(evaluate(node, frame));
    return all;
  }

  static Value dict_of(const List& pairs) {
    Dict all;
    for (std::size_t i = 0; i < pairs.size(); i += 2) all.set(pairs[i], pairs[i + 1]);
    return dict(std::move(all));
  }

  Value item_of(const Node& node, Frame& frame) {
    const Value on = evaluate(node.parts[0], frame);
    if (node.parts[1].kind != Kind::slice) return item(on, evaluate(node.parts[1], frame));
    const List bounds = evaluated(node.parts[1].parts, frame);
    return sliced(on, bounds[0], bounds[1], bounds[2]);
  }

  static Value signed_number(const std::string& sign, const Value& value) {
    require_defined(value);
    if (!real(value)) failed("no sign of a " + kind_of(value));
    return computed('*', value, {std::int64_t{sign == "-" ? -1 : 1}});
  }

  Value binary(const Node& node, Value left, Frame& frame) {
    if (node.name == "and") return truth(left) ? evaluate(node.parts[1], frame) : left;
    if (node.name == "or") return truth(left) ? left : evaluate(node.parts[1], frame);
    const Value right = evaluate(node.parts[1], frame);
    if (node.name == "~") return text(shown(left) + shown(right));
    return computed(node.name == "//" ? '|' : node.name[0], left, right);
  }

  Value compare(const Node& node, Frame& frame) {
    Value left = evaluate(node.parts[0], frame);
    for (std::size_t i = 1; i < node.parts.size(); ++i) {
      Value right = evaluate(node.parts[i].parts[0], frame);
      if (!passes(node.parts[i].name, left, {{right}, {}})) return boolean(false);
      left = std::move(right);
    }
    return boolean(true);
  }

  // The first part is called; these are the parts after it.
  Arguments arguments(const Nodes& nodes, Frame& frame) {
    Arguments all;
    for (std::size_t i = 1; i < nodes.size(); ++i) {
      Value value = evaluate(nodes[i].parts[0], frame);
      if (nodes[i].name.empty()) {
        all.values.push_back(std::move(value));
      } else if (nodes[i].name == "*") {
        std::ranges::move(items_of(value), std::back_inserter(all.values));
      } else if (nodes[i].name == "**") {
        if (!value.dict()) failed("arguments by ** of a " + kind_of(value));
        for (const auto& [key, one] : value.dict()->entries()) {
          if (!key.text()) failed("an argument whose name is a " + kind_of(key));
          add_named(all, *key.text(), one);
        }
      } else {
        add_named(all, nodes[i].name, std::move(value));
      }
    }
    return all;
  }

  static void add_named(Arguments& all, const std::string& name, Value value) {
    charge(all.named.size());
    const bool twice = std::ranges::any_of(all.named, [&](const auto& pair) { return pair.first == name; });
    if (twice) failed("the argument " + name + " twice");
    all.named.emplace_back(name, std::move(value));
  }

  // `caller`: a block that is handed to what is called.
  Value call(const Node& node, Frame& frame, const std::optional<Value>& caller = {}) {
    const Value on = evaluate(node.parts[0], frame);
    Arguments given = arguments(node.parts, frame);
    if (caller) add_named(given, "caller", *caller);
    require_defined(on);
    const Function* called = on.shared<const Function>();
    if (!called) failed_at(node.line, "a call of a " + kind_of(on));
    Value value = called->call(given);
    if (value.space()) spaces_.push_back(*value.get<std::shared_ptr<Namespace>>());
    return value;
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
