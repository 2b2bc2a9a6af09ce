// Jinja's expressions.
#pragma once

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/ast.hpp"
#include "jinja/builtins.hpp"
#include "jinja/lexer.hpp"

namespace attn::jinja {

inline NodePtr make(Node::Kind kind, std::size_t line, std::string name = {}) {
  auto node = std::make_unique<Node>();
  node->kind = kind, node->line = line, node->name = std::move(name);
  return node;
}

// What the parser of statements builds on: the tokens, and the expressions between them.
class Expressions {
 protected:
  using Kind = Node::Kind;
  using TokenKind = Token::Kind;
  using Words = std::vector<std::string_view>;

  static constexpr int kDeepest = 150;  // of expressions and statements in one another

  explicit Expressions(std::string_view source) : tokens_(tokens_of(source)) {}

  // ---- tokens
  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  std::size_t line() const { return now().line; }
  bool is(std::string_view text) const {
    return (now().kind == TokenKind::sign || now().kind == TokenKind::name) && now().text == text;
  }
  bool skip(std::string_view text) { return is(text) && ++at_ > 0; }
  [[noreturn]] void fail(const std::string& why) const { failed_at(line(), why); }
  Token take(TokenKind kind) {
    if (now().kind != kind)
      fail(now().kind == TokenKind::end ? "an end too early" : "a tag of another form at " + now().text);
    return tokens_[at_++];
  }
  void expect(std::string_view sign) {
    if (!skip(sign)) fail("no " + std::string(sign) + " where one is needed");
  }

  // ---- expressions, from the loosest to the tightest

  NodePtr tuple(bool choices, const Words& ends = {}, bool parenthesized = false) {
    auto all = make(Kind::tuple, line());
    bool commas = false;
    while (!ends_tuple(ends)) {
      all->parts.push_back(choices ? expression() : either());
      if (!skip(",")) break;
      commas = true;
    }
    if (all->parts.empty() && !parenthesized) fail("no expression");
    return commas || all->parts.empty() ? std::move(all) : std::move(all->parts[0]);
  }

  bool ends_tuple(const Words& ends) const {
    if (now().kind == TokenKind::end_print || now().kind == TokenKind::end_block || is(")")) return true;
    return now().kind == TokenKind::name && std::ranges::count(ends, now().text) > 0;
  }

  NodePtr expression() {
    const Deeper deeper(depth_, kDeepest, "expressions or tags");
    NodePtr value = either();
    while (is("if")) {
      auto node = make(Kind::choice, line());
      ++at_;
      const bool soft = std::exchange(soft_, true);
      node->parts.push_back(either());
      node->parts.push_back(std::move(value));
      if (skip("else")) node->parts.push_back(expression());
      soft_ = soft;
      value = std::move(node);
    }
    return value;
  }

  NodePtr pair(Kind kind, NodePtr left, NodePtr right, std::string sign = {}) {
    auto node = make(kind, line(), std::move(sign));
    node->parts.push_back(std::move(left));
    node->parts.push_back(std::move(right));
    return node;
  }

  // Operands of one strength, taken together from the left.
  NodePtr chain(Kind kind, const Words& signs, NodePtr (Expressions::*next)()) {
    NodePtr left = (this->*next)();
    while (std::ranges::any_of(signs, [&](std::string_view sign) { return is(sign); })) {
      const std::string sign = tokens_[at_++].text;
      left = pair(kind, std::move(left), (this->*next)(), sign);
    }
    return left;
  }

  NodePtr either() { return chain(Kind::either, {"or"}, &Expressions::both); }
  NodePtr both() { return chain(Kind::both, {"and"}, &Expressions::negated); }
  NodePtr sum() { return chain(Kind::binary, {"+", "-"}, &Expressions::joined); }
  NodePtr product() { return chain(Kind::binary, {"*", "/", "//", "%"}, &Expressions::power); }

  NodePtr negated() {
    if (!is("not")) return comparison();
    const Deeper deeper(depth_, kDeepest, "expressions or tags");
    auto node = make(Kind::unary, line(), "not");
    ++at_;
    node->on = negated();
    return node;
  }

  NodePtr comparison() {
    NodePtr first = sum();
    NodePtr all;
    while (true) {
      std::string sign;
      for (const std::string_view known : {"==", "!=", "<", "<=", ">", ">="}) {
        if (is(known)) sign = known;
      }
      if (is("in")) sign = "in";
      if (is("not") && after().kind == TokenKind::name && after().text == "in") sign = "!in";
      if (sign.empty()) return all ? std::move(all) : std::move(first);
      at_ += sign == "!in" ? 2 : 1;
      if (!all) all = make(Kind::compare, line()), all->on = std::move(first);
      all->parts.push_back(make(Kind::argument, line(), sign));
      all->parts.back()->on = sum();
    }
  }

  NodePtr joined() {
    NodePtr first = product();
    if (!is("~")) return first;
    auto node = make(Kind::join, line());
    node->parts.push_back(std::move(first));
    while (skip("~")) node->parts.push_back(product());
    return node;
  }

  NodePtr power() {
    NodePtr left = unary(true);
    if (is("**")) unsupported("the operator ** in line " + std::to_string(line()));
    return left;
  }

  NodePtr unary(bool filtered) {
    const Deeper deeper(depth_, kDeepest, "expressions or tags");
    NodePtr node;
    if (is("-") || is("+")) {
      node = make(Kind::unary, line(), take(TokenKind::sign).text);
      node->on = unary(false);
    } else {
      node = postfix(primary());
    }
    return filtered ? after_filters(std::move(node)) : std::move(node);
  }

  NodePtr primary() {
    const Deeper deeper(depth_, kDeepest, "expressions or tags");
    auto node = make(Kind::constant, line());
    if (now().kind == TokenKind::name) return name(std::move(node));
    if (now().kind == TokenKind::string) {
      std::string all;
      while (now().kind == TokenKind::string) all += take(TokenKind::string).text;
      node->value = text(all);
    } else if (now().kind == TokenKind::integer || now().kind == TokenKind::number) {
      node->value = number(tokens_[at_++]);
    } else if (skip("(")) {
      node = tuple(true, {}, true);
      expect(")");
    } else if (skip("[")) {
      node->kind = Kind::list;
      while (!is("]")) {
        if (!node->parts.empty()) expect(",");
        if (!is("]")) node->parts.push_back(expression());
      }
      expect("]");
    } else if (skip("{")) {
      node->kind = Kind::dict;
      while (!is("}")) {
        if (!node->parts.empty()) expect(",");
        if (is("}")) break;
        NodePtr key = expression();
        expect(":");
        node->parts.push_back(pair(Kind::argument, std::move(key), expression()));
      }
      expect("}");
    } else {
      fail(now().text.empty() ? "an expression that ends too early" : "an expression with " + now().text);
    }
    return node;
  }

  NodePtr name(NodePtr node) {
    const std::string word = take(TokenKind::name).text;
    if (word == "true" || word == "True" || word == "false" || word == "False") {
      node->value = boolean(word == "true" || word == "True");
    } else if (word == "none" || word == "None") {
      node->value = none();
    } else {
      node->kind = Kind::name, node->name = word;
      if (macros_ > 0) require_plain(word);
    }
    return node;
  }

  // Names that have another meaning in a macro.
  static void require_plain(const std::string& name) {
    if (listed("caller varargs kwargs", name)) unsupported("the name " + name + " in a macro");
  }

  Value number(const Token& token) const {
    const char *begin = token.text.data(), *end = begin + token.text.size();
    std::int64_t whole_number = 0;
    double x = 0;
    const bool integral = token.kind == TokenKind::integer;
    const auto result = integral ? std::from_chars(begin, end, whole_number) : std::from_chars(begin, end, x);
    if (result.ec != std::errc{}) unsupported("the number " + token.text + " in line " + std::to_string(token.line));
    return integral ? Value{whole_number} : Value{x};
  }

  NodePtr postfix(NodePtr node) {
    for (int size = 0; is(".") || is("[") || is("("); ++size) {
      if (size > kDeepest) fail("an expression with more than 150 parts in a row");
      node = is("(") ? call(std::move(node)) : subscript(std::move(node));
    }
    return node;
  }

  NodePtr after_filters(NodePtr node) {
    for (int size = 0;; ++size) {
      if (size > kDeepest) fail("an expression with more than 150 filters in a row");
      if (is("|")) {
        node = filters(std::move(node), false);
      } else if (is("is")) {
        node = test(std::move(node));
      } else if (is("(")) {
        node = call(std::move(node));
      } else {
        return node;
      }
    }
  }

  NodePtr subscript(NodePtr on) {
    auto node = make(Kind::item, line());
    node->on = std::move(on);
    if (skip(".")) {
      if (now().kind == TokenKind::integer) {
        node->parts.push_back(make(Kind::constant, line()));
        node->parts[0]->value = number(take(TokenKind::integer));
      } else {
        node->kind = Kind::attribute, node->name = take(TokenKind::name).text;
      }
      return node;
    }
    expect("[");
    if (is("]")) fail("an empty subscript");
    node->parts.push_back(key());
    if (is(",")) unsupported("a subscript of several values in line " + std::to_string(line()));
    expect("]");
    return node;
  }

  // A key, or begin:end:step.
  NodePtr key() {
    NodePtr first = is(":") ? nullptr : expression();
    if (!is(":")) return first;
    auto node = make(Kind::slice, line());
    node->parts.push_back(std::move(first));
    while (skip(":")) {
      const bool given = !is(":") && !is("]") && !is(",");
      node->parts.push_back(given ? expression() : nullptr);
      if (node->parts.size() > 3) fail("a slice of more than three parts");
    }
    node->parts.resize(3);
    return node;
  }

  void arguments(Nodes& all) {
    expect("(");
    bool named = false;
    while (!is(")")) {
      if (!all.empty()) expect(",");
      if (is(")")) break;
      auto argument = make(Kind::argument, line());
      if (is("*") || is("**")) unsupported("an argument with " + now().text + " in line " + std::to_string(line()));
      if (now().kind == TokenKind::name && after().kind == TokenKind::sign && after().text == "=") {
        argument->name = take(TokenKind::name).text;
        ++at_;
        named = true;
      } else if (named) {
        fail("an argument without a name after one with a name");
      }
      argument->on = expression();
      all.push_back(std::move(argument));
    }
    expect(")");
  }

  NodePtr call(NodePtr on) {
    auto node = make(Kind::call, line());
    node->on = std::move(on);
    arguments(node->parts);
    return node;
  }

  std::string dotted() {
    std::string word = take(TokenKind::name).text;
    while (skip(".")) word += "." + take(TokenKind::name).text;
    return word;
  }

  // `inline_first`: the first one is not preceded by |.
  NodePtr filters(NodePtr on, bool inline_first) {
    for (int size = 0; is("|") || inline_first; ++size) {
      if (size > kDeepest) fail("an expression with more than 150 filters in a row");
      if (!std::exchange(inline_first, false)) ++at_;
      auto node = make(Kind::filter, line());
      node->name = dotted();
      if (!soft_) require_filter(node->name);
      node->on = std::move(on);
      if (is("(")) arguments(node->parts);
      on = std::move(node);
    }
    return on;
  }

  NodePtr test(NodePtr on) {
    ++at_;
    const bool negative = skip("not");
    auto node = make(Kind::test, line());
    node->name = dotted();
    if (!soft_) require_test(node->name);
    node->on = std::move(on);
    const bool word = now().kind == TokenKind::name && !is("else") && !is("or") && !is("and");
    const bool value = now().kind == TokenKind::string || now().kind == TokenKind::integer ||
                       now().kind == TokenKind::number || is("[") || is("{");
    if (is("(")) {
      arguments(node->parts);
    } else if (word || value) {
      if (is("is")) fail("a test of a test");
      node->parts.push_back(make(Kind::argument, line()));
      node->parts.back()->on = postfix(primary());
    }
    if (!negative) return node;
    auto all = make(Kind::unary, line(), "not");
    all->on = std::move(node);
    return all;
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0, loops_ = 0, macros_ = 0;
  bool soft_ = false;  // inside a condition, where Jinja looks for filters and tests only when they run
};

}  // namespace attn::jinja
