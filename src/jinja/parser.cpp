// Jinja's statements.
#include "jinja/expressions.hpp"

namespace attn::jinja {
namespace {

class Parser : Expressions {
 public:
  explicit Parser(std::string_view source) : Expressions(source) {}

  Node read() {
    Node all = make(Kind::scope);
    scoped(all, scope_, [&] { all.body = statements(""); });
    return all;
  }

 private:
  // Up to a tag that begins with one of the words, which is taken up to that word.
  Nodes statements(std::string_view ends) {
    const Deeper deep = deeper();
    Nodes all;
    while (!is(TokenKind::end)) {
      if (is(TokenKind::data)) {
        all.push_back(make(Kind::print, "", constant(text(take(TokenKind::data)))));
      } else if (skip("{{")) {
        all.push_back(make(Kind::print, "", tuple(true)));
        expect("}}");
      } else {
        expect("{%");
        if (is(TokenKind::name) && is(ends)) return all;
        if (!is(TokenKind::name)) fail("a tag without a name");
        all.push_back(statement());
        expect("%}");
      }
    }
    if (!ends.empty()) fail("no " + std::string(ends.substr(ends.rfind(' ') + 1)));
    return all;
  }

  // The statements after a tag, up to the tag of that name, which is taken but for its %}.
  Nodes body(std::string_view end) {
    expect("%}");
    Nodes all = statements(end);
    ++at_;
    return all;
  }

  Node statement() {
    const std::size_t start = line();
    const std::string word = take(TokenKind::name);
    if (word == "for") return loop();
    if (word == "if") return condition();
    if (word == "set") return set();
    if (word == "macro") return macro();
    if (word == "call") return call_block();
    if (word == "filter" || word == "generation") {  // generation tells transformers what a model is trained to write
      Node node = make(word == "filter" ? Kind::filter_block : Kind::scope);
      if (word == "filter") node.parts.push_back(filters(true));
      Scope scope = inner();
      scope.in_loop = scope.in_loop && word == "filter";
      scoped(node, std::move(scope), [&] { node.body = body("end" + word); });
      return node;
    }
    if (word == "break" || word == "continue") {
      if (!scope_.in_loop) failed_at(start, "a " + word + " outside a loop");
      return make(word == "break" ? Kind::leave : Kind::next);
    }
    if (listed("with block extends include import from autoescape print", word)) {
      unsupported("the tag " + word + " in line " + std::to_string(start));
    }
    failed_at(start, "the unknown tag " + word);
  }

  Node loop() {
    Node node = make(Kind::loop);
    const bool in_for = std::exchange(scope_.in_for, true);
    node.parts.push_back(target("in"));
    if (!skip("in")) fail("a loop without in");
    node.parts.push_back(tuple(false, "recursive"));
    Scope scope = inner();
    scope.soft = false, scope.in_loop = true;
    Node apart;  // Jinja looks at the condition by itself
    scoped(apart, scope, [&] { node.parts.push_back(skip("if") ? expression() : Node{}); });
    scoped(node, std::move(scope), [&] {
      scope_.seen.insert("loop");
      see(node.parts[0]);
      if (is("recursive")) lacks("a recursive loop");
      expect("%}");
      node.body = statements("else endfor");
    });
    if (skip("else")) {
      Node otherwise = make(Kind::scope);
      Scope other = inner();
      other.soft = false;
      scoped(otherwise, std::move(other), [&] { otherwise.body = body("endfor"); });
      node.otherwise.push_back(std::move(otherwise));
    } else {
      ++at_;
    }
    scope_.in_for = in_for;
    return node;
  }

  // The names of a loop and of a macro are the scope's own from the beginning.
  void see(const Node& target) {
    if (target.kind == Kind::name || target.kind == Kind::argument) scope_.seen.insert(target.name);
    for (const Node& part : target.parts) see(part);
  }

  Node condition() {
    Node first = make(Kind::condition);
    const bool soft = std::exchange(scope_.soft, true);
    ++scope_.conditions;
    Node* node = &first;
    for (int length = 0;; limit(length)) {
      node->parts.push_back(tuple(false));
      expect("%}");
      node->body = statements("elif else endif");
      if (!skip("elif")) {
        if (skip("else")) {
          node->otherwise = body("endif");
        } else {
          ++at_;
        }
        break;
      }
      node->otherwise.push_back(make(Kind::condition));
      node = &node->otherwise.back();
    }
    --scope_.conditions;
    scope_.soft = soft;
    return first;
  }

  Node set() {
    Node node = make(Kind::set, "", target("", true));
    const bool block = !skip("=");
    if (!block) node.parts.push_back(tuple(true));
    store(node.parts[0]);
    if (!block) return node;
    node.kind = Kind::set_block;
    scoped(node, inner(), [&] {
      node.parts.push_back(filters(false));
      node.body = body("endset");
    });
    return node;
  }

  Node macro() {
    Node node = make(Kind::macro, take(TokenKind::name));
    store(make(Kind::name, node.name));
    in_macro(node, [&] {
      parameters(node);
      const std::size_t callers = callers_;
      node.body = body("endmacro");
      node.value = boolean(callers_ > callers);
    });
    return node;
  }

  Node call_block() {
    Node node = make(Kind::call_block, "caller");
    in_macro(node, [&] {
      if (is("(")) parameters(node);
    });
    const std::unique_ptr<Names> names = std::move(node.names);
    Node called = expression();
    if (called.kind != Kind::call) fail("a tag call without a call");
    node.otherwise.push_back(std::move(called));
    in_macro(node, [&] {
      scope_.seen.merge(names->seen);
      const std::size_t callers = callers_;
      node.body = body("endcall");
      node.value = boolean(callers_ > callers);
    });
    return node;
  }

  template <class Read>
  void in_macro(Node& node, const Read& read) {
    Scope scope = inner();
    scope.soft = scope.in_loop = false, scope.in_macro = true;
    scoped(node, std::move(scope), read);
  }

  void parameters(Node& node) {
    expect("(");
    const std::size_t callers = callers_;
    separated(")", [&](bool first) {
      Node parameter = make(Kind::argument, take(TokenKind::name));
      require_plain(parameter.name, true);
      if (skip("=")) {
        parameter.parts.push_back(expression());
      } else if (!first && !node.parts.back().parts.empty()) {
        fail("a parameter without a default after one with a default");
      }
      scope_.seen.insert(parameter.name);
      node.parts.push_back(std::move(parameter));
    });
    if (callers_ > callers) lacks("the name caller among a macro's parameters");
  }

  // A name, names, or with `spaces` an attribute of a namespace.
  Node target(std::string_view end, bool spaces = false) {
    if (spaces && is(TokenKind::name) && then(".")) {
      Node space = name();
      ++at_;
      return make(Kind::attribute, take(TokenKind::name), std::move(space));
    }
    Node names = make(Kind::tuple);
    bool commas = false;
    while (is(TokenKind::name) ? now().text != end : is("(")) {
      const Deeper deep = deeper();
      if (skip("(")) {
        names.parts.push_back(target(""));
        expect(")");
      } else {
        names.parts.push_back(make(Kind::name, take(TokenKind::name)));
        const std::string& name = names.parts.back().name;
        if (scope_.in_macro) require_plain(name, true);
        if (scope_.in_for && name == "loop") fail("an assignment to loop in a loop");
        if (listed("true false none True False None", name)) fail("an assignment to a constant");
      }
      if (!skip(",")) break;
      commas = true;
    }
    if (names.parts.empty()) fail("no name to assign to");
    return commas ? std::move(names) : Node(std::move(names.parts[0]));
  }
};

// A scope hides no name that the scopes around it know.
void settle(Node& node, std::vector<const Names*>& around) {
  for (Node& part : node.otherwise) settle(part, around);
  if (node.names) {
    std::erase_if(node.names->unset, [&](const std::string& name) {
      return std::ranges::any_of(around, [&](const Names* names) { return names->seen.contains(name); });
    });
    around.push_back(node.names.get());
  }
  for (Node& part : node.body) settle(part, around);
  if (node.names) around.pop_back();
}

}  // namespace

Node parse(std::string_view source) {
  Node root = Parser(source).read();
  std::vector<const Names*> around;
  settle(root, around);
  return root;
}

}  // namespace attn::jinja
