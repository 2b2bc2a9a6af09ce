// Jinja's expressions.
#pragma once

#include <algorithm>
#include <charconv>

#include "jinja/builtins.hpp"
#include "jinja/lexer.hpp"
#include "jinja/template.hpp"

namespace attn::jinja {

// The parser of statements builds on this: it has the tokens, the names of the scope, and the expressions.
class Expressions {
 protected:
  using Kind = Node::Kind;
  using TokenKind = Token::Kind;

  explicit Expressions(std::string_view source) : tokens_(tokens_of(source)) {}

  static constexpr int kDeepest = 150;  // of expressions and statements in one another
  static constexpr int kLongest = 150;  // of what follows one another and is one in another in the tree

  // ---- tokens

  const Token& now() const { return tokens_[at_]; }
  std::size_t line() const { return now().line; }
  static bool is_word(const Token& token, std::string_view words) {
    return (token.kind == TokenKind::sign || token.kind == TokenKind::name) && listed(words, token.text);
  }
  // Whether the next token is one of the signs or words.
  bool is(std::string_view words) const { return is_word(now(), words); }
  bool then(std::string_view words) const { return is_word(tokens_[std::min(at_ + 1, tokens_.size() - 1)], words); }
  bool is(TokenKind kind) const { return now().kind == kind; }
  bool skip(std::string_view words) { return is(words) && ++at_ > 0; }
  [[noreturn]] void fail(const std::string& why) const { failed_at(line(), why); }
  [[noreturn]] void lacks(const std::string& what) const { unsupported(what + " in line " + std::to_string(line())); }
  std::string take(TokenKind kind) {
    if (!is(kind)) fail(is(TokenKind::end) ? "an end too early" : "a tag of another form at " + now().text);
    return tokens_[at_++].text;
  }
  void expect(std::string_view sign) {
    if (!skip(sign)) fail("no " + std::string(sign) + " where one is needed");
  }
  Deeper deeper() { return {depth_, kDeepest, "expressions or tags"}; }
  void limit(int& length) const {
    if (++length > kLongest) fail("more than 150 parts of an expression in a row");
  }

  template <class... Parts>
  Node make(Kind kind, std::string name = {}, Parts... parts) const {
    Node node{.kind = kind, .line = line(), .name = std::move(name)};
    (node.parts.push_back(std::move(parts)), ...);
    return node;
  }
  Node constant(Value value) const {
    Node node = make(Kind::constant);
    node.value = std::move(value);
    return node;
  }

  // ---- scopes

  struct Scope : Names {
    bool soft = false;  // inside a condition, where Jinja looks for filters and tests only when they run
    bool in_loop = false, in_for = false, in_macro = false;  // in_for also in a macro in a loop
    int conditions = 0;
  };

  Scope inner() const { return {{}, scope_.soft, scope_.in_loop, scope_.in_for, scope_.in_macro}; }

  // Reads what becomes the node's scope.
  template <class Read>
  void scoped(Node& node, Scope scope, const Read& read) {
    std::swap(scope_, scope);
    read();
    std::swap(scope_, scope);
    node.names = std::make_unique<Names>(std::move(scope));
  }

  void store(const Node& target) {
    if (target.kind == Kind::tuple) std::ranges::for_each(target.parts, [&](const Node& part) { store(part); });
    if (target.kind != Kind::name) return;
    if (scope_.conditions == 0 && !scope_.seen.contains(target.name)) scope_.unset.push_back(target.name);
    scope_.seen.insert(target.name);
  }

  // ---- expressions, from the loosest to the tightest

  Node tuple(bool choices, std::string_view ends = "", bool parenthesized = false) {
    Node all = make(Kind::tuple);
    bool commas = false;
    while (!is("%} }} )") && !is(ends)) {
      all.parts.push_back(choices ? expression() : chain(0));
      if (!skip(",")) break;
      commas = true;
    }
    if (all.parts.empty() && !parenthesized) fail("no expression");
    return commas || all.parts.empty() ? std::move(all) : Node(std::move(all.parts[0]));
  }

  Node expression() {
    const Deeper deep = deeper();
    Node value = chain(0);
    for (int length = 0; skip("if"); limit(length)) {
      const bool soft = std::exchange(scope_.soft, true);
      Node condition = chain(0);
      value = make(Kind::choice, "", std::move(condition), std::move(value), skip("else") ? expression() : Node{});
      scope_.soft = soft;
    }
    return value;
  }

  // Operands of one strength, taken together from the left.
  Node chain(std::size_t strength) {
    constexpr std::string_view signs[] = {"or", "and", "", "+ -", "~", "* / // %"};
    if (strength == 2) return comparison();
    if (strength == std::size(signs)) return unary(true);
    Node left = chain(strength + 1);
    for (int length = 0; is(signs[strength]); limit(length)) {
      std::string sign = tokens_[at_++].text;
      left = make(Kind::binary, std::move(sign), std::move(left), chain(strength + 1));
    }
    return left;
  }

  Node comparison() {
    if (skip("not")) {
      const Deeper deep = deeper();
      return make(Kind::negation, "", comparison());
    }
    Node all = make(Kind::compare, "", chain(3));
    while (is("== != < <= > >= in") || (is("not") && then("in"))) {
      const std::string sign = skip("not") ? "!in" : now().text;
      ++at_;
      all.parts.push_back(make(Kind::argument, sign, chain(3)));
    }
    return all.parts.size() > 1 ? std::move(all) : Node(std::move(all.parts[0]));
  }

  Node unary(bool filtered) {
    const Deeper deep = deeper();
    const std::string sign = is("+ -") ? take(TokenKind::sign) : "";
    Node node = sign.empty() ? postfix(primary()) : make(Kind::unary, sign, unary(false));
    if (filtered) node = after_filters(std::move(node));
    if (is("**")) lacks("the operator **");
    return node;
  }

  Node primary() {
    const Deeper deep = deeper();
    if (is(TokenKind::name)) return name();
    if (is(TokenKind::integer) || is(TokenKind::number)) return number();
    if (is(TokenKind::string)) {
      std::string all;
      while (is(TokenKind::string)) all += take(TokenKind::string);
      return constant(text(all));
    }
    if (skip("(")) {
      Node node = tuple(true, "", true);
      expect(")");
      return node;
    }
    if (!is("[ {")) fail(now().text.empty() ? "an expression that ends too early" : "an expression with " + now().text);
    Node node = make(is("[") ? Kind::list : Kind::dict);
    ++at_;
    separated(node.kind == Kind::list ? "]" : "}", [&](bool) {
      node.parts.push_back(expression());
      if (node.kind == Kind::list) return;
      expect(":");
      node.parts.push_back(expression());
    });
    return node;
  }

  // Reads what stands between commas up to `end`; `read` is told whether it is the first.
  template <class Read>
  void separated(std::string_view end, const Read& read) {
    for (bool first = true; !skip(end); first = false) {
      if (!first) expect(",");
      if (!first && skip(end)) return;
      read(first);
    }
  }

  Node name() {
    const std::string word = take(TokenKind::name);
    if (listed("true True false False", word)) return constant(boolean(word == "true" || word == "True"));
    if (listed("none None", word)) return constant(none());
    if (scope_.in_macro) require_plain(word);
    callers_ += scope_.in_macro && word == "caller";
    scope_.seen.insert(word);
    return make(Kind::name, word);
  }

  // Names that have another meaning in a macro. `assigned`: also what a macro reads, and gives no other value to.
  static void require_plain(const std::string& name, bool assigned = false) {
    if (listed("varargs kwargs", name) || (assigned && name == "caller"))
      unsupported("the name " + name + " in a macro");
  }

  Node number() {
    const Token& token = tokens_[at_++];
    const char *begin = token.text.data(), *end = begin + token.text.size();
    std::int64_t i = 0;
    double x = 0;
    const bool integral = token.kind == TokenKind::integer;
    const auto result = integral ? std::from_chars(begin, end, i) : std::from_chars(begin, end, x);
    if (result.ec != std::errc{}) lacks("the number " + token.text);
    return constant(integral ? Value{i} : Value{x});
  }

  Node postfix(Node node) {
    for (int length = 0; is(". [ ("); limit(length))
      node = is("(") ? call(std::move(node)) : subscript(std::move(node));
    return node;
  }

  Node after_filters(Node node) {
    for (int length = 0; is("| is ("); limit(length)) {
      node = is("(") ? call(std::move(node)) : skip("|") ? filter(std::move(node)) : test(std::move(node));
    }
    return node;
  }

  Node subscript(Node on) {
    if (skip(".")) {
      if (is(TokenKind::integer)) return make(Kind::item, "", std::move(on), number());
      return make(Kind::attribute, take(TokenKind::name), std::move(on));
    }
    expect("[");
    if (is("]")) fail("an empty subscript");
    Node node = make(Kind::item, "", std::move(on), is(":") ? Node{} : expression());
    if (is(":")) {
      Node slice = make(Kind::slice, "", std::move(node.parts[1]));
      while (skip(":")) slice.parts.push_back(is(": ] ,") ? Node{} : expression());
      if (slice.parts.size() > 3) fail("a slice of more than three parts");
      slice.parts.resize(3);
      node.parts[1] = std::move(slice);
    }
    if (is(",")) lacks("a subscript of several values");
    expect("]");
    return node;
  }

  void arguments(Nodes& all) {
    expect("(");
    bool named = false, starred = false, last = false;
    separated(")", [&](bool) {
      Node argument = make(Kind::argument);
      const bool by_name = is(TokenKind::name) && then("=");
      if (last || (is("*") ? starred : !by_name && !is("**") && (named || starred))) {
        fail("arguments in an order that Jinja has not");
      }
      named |= by_name, starred |= is("*"), last |= is("**");
      if (by_name || is("* **")) argument.name = tokens_[at_++].text;
      if (by_name) {
        ++at_;
        const auto same = [&](const Node& n) { return n.kind == Kind::argument && n.name == argument.name; };
        if (std::ranges::any_of(all, same)) fail("an argument twice");
      }
      argument.parts.push_back(expression());
      all.push_back(std::move(argument));
    });
  }

  Node call(Node on) {
    Node node = make(Kind::call, "", std::move(on));
    arguments(node.parts);
    return node;
  }

  std::string dotted() {
    std::string word = take(TokenKind::name);
    while (skip(".")) word.append(".").append(take(TokenKind::name));
    return word;
  }

  Node filter(Node on) {
    Node node = make(Kind::filter, dotted(), std::move(on));
    if (!scope_.soft) builtin(kFilters, node.name);
    if (is("(")) arguments(node.parts);
    return node;
  }

  // Filters of a block's text.
  Node filters(bool named) {
    Node node = make(Kind::name);
    if (named) node = filter(std::move(node));
    for (int length = 0; skip("|"); limit(length)) node = filter(std::move(node));
    return node;
  }

  Node test(Node on) {
    ++at_;
    const bool negative = skip("not");
    Node node = make(Kind::test, dotted(), std::move(on));
    if (!scope_.soft) builtin(kTests, node.name);
    if (is("(")) {
      arguments(node.parts);
    } else if (is(TokenKind::string) || is(TokenKind::integer) || is(TokenKind::number) || is("[ {") ||
               (is(TokenKind::name) && !is("else or and"))) {
      if (is("is")) fail("a test of a test");
      node.parts.push_back(make(Kind::argument, "", postfix(primary())));
    }
    return negative ? make(Kind::negation, "", std::move(node)) : std::move(node);
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::size_t callers_ = 0;  // how often macros have read the name caller
  int depth_ = 0;
  Scope scope_{};
};

}  // namespace attn::jinja
