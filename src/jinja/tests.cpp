// Jinja's tests, which comparisons are among.
#include "jinja/builtins.hpp"
#include "jinja/strings.hpp"

namespace attn::jinja {
namespace {

Value divides(Call& c, const Value& by, std::size_t rest) {
  return boolean(equal(computed('%', c.self, by), integer(rest)));
}

Value has_order(Call& c, bool less_first, bool negated) {
  for (const Value* v : std::initializer_list<const Value*>{&c.self, &*c.slots[0]}) {
    if (const Undefined* u = v->get<Undefined>()) failed(*u->why);
  }
  return boolean(less(less_first ? c.self : *c.slots[0], less_first ? *c.slots[0] : c.self) != negated);
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
    {"!= ne", "other", [](Call& c) { return boolean(!equal(c.self, *c.slots[0])); }},
    {"!in", "seq", [](Call& c) { return boolean(!contains(*c.slots[0], c.self)); }},
    {"< lt lessthan", "other", [](Call& c) { return has_order(c, true, false); }},
    {"<= le", "other", [](Call& c) { return has_order(c, false, true); }},
    {"== eq equalto", "other", [](Call& c) { return boolean(equal(c.self, *c.slots[0])); }},
    {"> gt greaterthan", "other", [](Call& c) { return has_order(c, false, false); }},
    {">= ge", "other", [](Call& c) { return has_order(c, true, true); }},
    {"boolean", "", [](Call& c) { return boolean(c.self.is<bool>()); }},
    {"defined", "", [](Call& c) { return boolean(!c.self.is<Undefined>()); }},
    {"divisibleby", "num", [](Call& c) { return divides(c, *c.slots[0], 0); }},
    {"even", "", [](Call& c) { return divides(c, integer(2), 0); }},
    {"false", "", [](Call& c) { return boolean(c.self.is<bool>() && !truth(c.self)); }},
    {"float", "", [](Call& c) { return boolean(c.self.is<double>()); }},
    {"in", "seq", [](Call& c) { return boolean(contains(*c.slots[0], c.self)); }},
    {"integer", "", [](Call& c) { return boolean(c.self.is<std::int64_t>()); }},
    {"iterable", "", is_iterable},
    {"mapping", "", [](Call& c) { return boolean(c.self.dict() != nullptr); }},
    {"none", "", [](Call& c) { return boolean(c.self.is<None>()); }},
    {"number", "", [](Call& c) { return boolean(is_number(c.self)); }},
    {"odd", "", [](Call& c) { return divides(c, integer(2), 1); }},
    {"sequence", "", is_sequence},
    {"string", "", [](Call& c) { return boolean(c.self.text() != nullptr); }},
    {"true", "", [](Call& c) { return boolean(c.self.is<bool>() && truth(c.self)); }},
    {"undefined", "", [](Call& c) { return boolean(c.self.is<Undefined>()); }},
};

const Builtin& known(const std::string& name) {
  if (const Builtin* test = found(kTests, name)) return *test;
  unsupported("the test " + name);
}

}  // namespace

void require_test(const std::string& name) { known(name); }

bool passes(const std::string& name, const Value& value, Arguments given) {
  return truth(call(known(name), value, std::move(given)));
}

}  // namespace attn::jinja
