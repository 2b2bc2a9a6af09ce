// Jinja's statements.
#include "jinja/expressions.hpp"

namespace attn::jinja {
namespace {

class Parser : private Expressions {
 public:
  explicit Parser(std::string_view source) : Expressions(source) {}

  Nodes read() {
    Nodes all = statements({});
    if (now().kind != TokenKind::end) fail("a tag that ends nothing");
    return all;
  }

 private:
  // Up to a tag that begins with one of the words, whose word is not taken.
  Nodes statements(const Words& ends) {
    const Deeper deeper(depth_, kDeepest, "expressions or tags");
    Nodes all;
    while (now().kind != TokenKind::end) {
      if (now().kind == TokenKind::data) {
        auto node = make(Kind::data, line());
        node->value = text(take(TokenKind::data).text);
        all.push_back(std::move(node));
      } else if (now().kind == TokenKind::begin_print) {
        auto node = make(Kind::print, line());
        ++at_;
        node->on = tuple(true);
        take(TokenKind::end_print);
        all.push_back(std::move(node));
      } else {
        take(TokenKind::begin_block);
        if (now().kind == TokenKind::name && std::ranges::count(ends, now().text) > 0) return all;
        if (now().kind != TokenKind::name) fail("a tag without a name");
        all.push_back(statement());
        take(TokenKind::end_block);
      }
    }
    if (!ends.empty()) fail("no " + std::string(ends.back()));
    return all;
  }

  // The statements after a tag, up to the tag of that name, which is taken but for its %}.
  Nodes body(std::string_view end) {
    take(TokenKind::end_block);
    Nodes all = statements({end});
    ++at_;
    return all;
  }

  NodePtr statement() {
    const std::string word = now().text;
    const std::size_t start = line();
    ++at_;
    if (word == "for") return loop(start);
    if (word == "if") return condition(start);
    if (word == "set") return set(start);
    if (word == "macro") return macro(start);
    if (word == "filter") {
      auto node = make(Kind::filter_block, start);
      node->on = filters(nullptr, true);
      node->body = body("endfilter");
      return node;
    }
    if (word == "generation") {  // whose marks tell transformers what a model is trained to write
      auto node = make(Kind::scope, start);
      const int loops = std::exchange(loops_, 0);
      node->body = body("endgeneration");
      loops_ = loops;
      return node;
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) failed_at(start, "a " + word + " outside a loop");
      return make(word == "break" ? Kind::leave : Kind::next, start);
    }
    if (listed("call with block extends include import from autoescape print", word)) {
      unsupported("the tag " + word + " in line " + std::to_string(start));
    }
    failed_at(start, "the unknown tag " + word);
  }

  NodePtr loop(std::size_t start) {
    auto node = make(Kind::loop, start);
    ++fors_;
    node->parts.push_back(target("in"));
    if (!skip("in")) fail("a loop without in");
    node->on = tuple(false, {"recursive"});
    const bool soft = std::exchange(soft_, false);
    if (skip("if")) node->when = expression();
    if (is("recursive")) unsupported("a recursive loop in line " + std::to_string(start));
    take(TokenKind::end_block);
    ++loops_;
    node->body = statements({"endfor", "else"});
    --loops_;
    if (skip("else")) {
      node->otherwise = body("endfor");
    } else {
      ++at_;
    }
    --fors_;
    soft_ = soft;
    return node;
  }

  NodePtr condition(std::size_t start) {
    auto first = make(Kind::condition, start);
    const bool soft = std::exchange(soft_, true);
    for (Node* node = first.get();;) {
      node->on = tuple(false);
      take(TokenKind::end_block);
      node->body = statements({"elif", "else", "endif"});
      if (skip("elif")) {
        node->otherwise.push_back(make(Kind::condition, line()));
        node = node->otherwise.back().get();
        continue;
      }
      if (skip("else")) {
        node->otherwise = body("endif");
      } else {
        ++at_;
      }
      soft_ = soft;
      return first;
    }
  }

  NodePtr set(std::size_t start) {
    auto node = make(Kind::set, start);
    node->parts.push_back(target({}, true));
    if (skip("=")) {
      node->on = tuple(true);
      return node;
    }
    node->kind = Kind::set_block;
    node->on = filters(nullptr, false);
    node->body = body("endset");
    return node;
  }

  // (a, b=1): what a macro takes.
  void parameters(Node& macro) {
    expect("(");
    while (!is(")")) {
      if (!macro.parts.empty()) expect(",");
      if (is(")")) break;
      auto parameter = make(Kind::argument, line(), take(TokenKind::name).text);
      require_plain(parameter->name);
      if (skip("=")) {
        parameter->on = expression();
      } else if (!macro.parts.empty() && macro.parts.back()->on) {
        fail("a parameter without a default after one with a default");
      }
      macro.parts.push_back(std::move(parameter));
    }
    expect(")");
  }

  NodePtr macro(std::size_t start) {
    auto node = make(Kind::macro, start, take(TokenKind::name).text);
    const bool soft = std::exchange(soft_, false);
    const int loops = std::exchange(loops_, 0);
    ++macros_;
    parameters(*node);
    node->body = body("endmacro");
    --macros_;
    soft_ = soft, loops_ = loops;
    return node;
  }

  // A name, names, or with `spaces` an attribute of a namespace.
  NodePtr target(std::string_view end, bool spaces = false) {
    if (spaces && now().kind == TokenKind::name && after().kind == TokenKind::sign && after().text == ".") {
      auto node = make(Kind::attribute, line());
      node->on = make(Kind::name, line(), take(TokenKind::name).text);
      ++at_;
      node->name = take(TokenKind::name).text;
      return node;
    }
    auto names = make(Kind::tuple, line());
    bool commas = false;
    while (now().kind == TokenKind::name ? now().text != end : is("(")) {
      const Deeper deeper(depth_, kDeepest, "expressions or tags");
      if (skip("(")) {
        names->parts.push_back(target({}));
        expect(")");
      } else {
        names->parts.push_back(make(Kind::name, line(), take(TokenKind::name).text));
        if (fors_ > 0 && names->parts.back()->name == "loop") fail("an assignment to loop in a loop");
        if (listed("true false none True False None", names->parts.back()->name)) fail("an assignment to a constant");
      }
      if (!skip(",")) break;
      commas = true;
    }
    if (names->parts.empty()) fail("no name to assign to");
    return commas ? std::move(names) : std::move(names->parts[0]);
  }

  int fors_ = 0;  // loops around, also of a macro's body
};

}  // namespace

Node parse(std::string_view source) {
  Node root{.kind = Node::Kind::scope};
  root.body = Parser(source).read();
  find_unset(root);
  return root;
}

}  // namespace attn::jinja
