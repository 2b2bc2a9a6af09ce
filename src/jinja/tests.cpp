// Jinja's tests, which comparisons are among.
#include <algorithm>

#include "jinja/builtins.hpp"
#include "jinja/strings.hpp"

namespace attn::jinja {
namespace {

Value divides(Call& c, std::int64_t by, std::int64_t rest) {
  return boolean(equal(computed('%', c.self, {by}), {rest}));
}

Value has_order(Call& c, bool less_first, bool negated) {
  for (const Value* v : std::initializer_list<const Value*>{&c.self, &*c.slots[0]}) {
    if (const Undefined* u = v->get<Undefined>()) failed(*u->why);
  }
  return boolean(less(less_first ? c.self : *c.slots[0], less_first ? *c.slots[0] : c.self) != negated);
}

Value same(Call& c) {
  if (c.self.held.index() != c.slots[0]->held.index()) return boolean(false);
  if (!c.self.is<bool>() && !c.self.is<None>()) unsupported("the test sameas of a " + kind_of(c.self));
  return boolean(equal(c.self, *c.slots[0]));
}

Value is_sequence(Call& c) {
  const Sequence* s = c.self.sequence();
  return boolean(c.self.text() || c.self.dict() || c.self.is<Undefined>() || (s && s->kind <= Sequence::Kind::range));
}

Value is_iterable(Call& c) {
  return boolean(!is_number(c.self) && !c.self.is<None>() && !c.self.is<std::shared_ptr<Namespace>>() &&
                 !c.self.is<std::shared_ptr<const Function>>());
}

constexpr Builtin kTests[] = {
    {"!=", "other", [](Call& c) { return boolean(!equal(c.self, *c.slots[0])); }},
    {"<", "other", [](Call& c) { return has_order(c, true, false); }},
    {"<=", "other", [](Call& c) { return has_order(c, false, true); }},
    {"==", "other", [](Call& c) { return boolean(equal(c.self, *c.slots[0])); }},
    {">", "other", [](Call& c) { return has_order(c, false, false); }},
    {">=", "other", [](Call& c) { return has_order(c, true, true); }},
    {"boolean", "", [](Call& c) { return boolean(c.self.is<bool>()); }},
    {"callable", "",
     [](Call& c) {
       return boolean(c.self.is<std::shared_ptr<const Function>>() || c.self.is<std::shared_ptr<Loop>>() ||
                      c.self.is<Undefined>());
     }},
    {"defined", "", [](Call& c) { return boolean(!c.self.is<Undefined>()); }},
    {"divisibleby", "num", [](Call& c) { return boolean(equal(computed('%', c.self, *c.slots[0]), integer(0))); }},
    {"eq", "other", [](Call& c) { return boolean(equal(c.self, *c.slots[0])); }},
    {"equalto", "other", [](Call& c) { return boolean(equal(c.self, *c.slots[0])); }},
    {"escaped", "", [](Call& c) { return boolean(c.self.safe()); }},
    {"even", "", [](Call& c) { return divides(c, 2, 0); }},
    {"false", "", [](Call& c) { return boolean(c.self.is<bool>() && !truth(c.self)); }},
    {"float", "", [](Call& c) { return boolean(c.self.is<double>()); }},
    {"ge", "other", [](Call& c) { return has_order(c, true, true); }},
    {"greaterthan", "other", [](Call& c) { return has_order(c, false, false); }},
    {"gt", "other", [](Call& c) { return has_order(c, false, false); }},
    {"in", "seq", [](Call& c) { return boolean(contains(*c.slots[0], c.self)); }},
    {"integer", "", [](Call& c) { return boolean(c.self.is<std::int64_t>()); }},
    {"iterable", "", is_iterable},
    {"le", "other", [](Call& c) { return has_order(c, false, true); }},
    {"lessthan", "other", [](Call& c) { return has_order(c, true, false); }},
    {"lt", "other", [](Call& c) { return has_order(c, true, false); }},
    {"mapping", "", [](Call& c) { return boolean(c.self.dict() != nullptr); }},
    {"ne", "other", [](Call& c) { return boolean(!equal(c.self, *c.slots[0])); }},
    {"none", "", [](Call& c) { return boolean(c.self.is<None>()); }},
    {"not in", "seq", [](Call& c) { return boolean(!contains(*c.slots[0], c.self)); }},
    {"number", "", [](Call& c) { return boolean(is_number(c.self)); }},
    {"odd", "", [](Call& c) { return divides(c, 2, 1); }},
    {"sameas", "other", same},
    {"sequence", "", is_sequence},
    {"string", "", [](Call& c) { return boolean(c.self.text() != nullptr); }},
    {"true", "", [](Call& c) { return boolean(c.self.is<bool>() && truth(c.self)); }},
    {"undefined", "", [](Call& c) { return boolean(c.self.is<Undefined>()); }},
};

const Builtin& found(const std::string& name) {
  const auto* at = std::ranges::find(kTests, name, &Builtin::name);
  if (at != std::end(kTests)) return *at;
  unsupported("the test " + name);
}

}  // namespace

void require_test(const std::string& name) { found(name); }

bool passes(const std::string& name, const Value& value, Arguments given) {
  return truth(call(found(name), value, std::move(given)));
}

}  // namespace attn::jinja
