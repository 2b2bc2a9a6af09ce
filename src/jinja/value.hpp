// The expressions of a template yield Python's values, as far as JSON and Jinja make them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace attn::io {
struct Origin;
}

namespace attn::jinja {

struct Value;
class Dict;
using List = std::vector<Value>;

struct Undefined {
  std::shared_ptr<const std::string> why;  // "'x' is undefined"
};
struct None {};
struct Text {
  std::shared_ptr<const std::string> bytes;  // UTF-8
  bool safe = false;                         // Markup, which escapes what is joined to it
};
struct Sequence {
  enum class Kind { list, tuple, range, keys, values, items, generator } kind;
  List items;
  int depth;
  mutable std::size_t taken = 0;  // of a generator: what was taken from it is gone
};
struct Namespace;
struct Arguments {
  List values;
  std::vector<std::pair<std::string, Value>> named;
};
struct Function {
  std::string name;
  std::function<Value(Arguments&)> call;
};
struct Loop {
  List items;
  std::size_t at = 0;
};

struct Value {
  std::variant<Undefined, None, bool, std::int64_t, double, Text, std::shared_ptr<const Sequence>,
               std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<const Function>,
               std::shared_ptr<Loop>>
      held;

  template <class T>
  bool is() const noexcept {
    return std::holds_alternative<T>(held);
  }
  // Null for another kind.
  template <class T>
  const T* get() const noexcept {
    return std::get_if<T>(&held);
  }
  template <class T>
  T* shared() const noexcept {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&held);
    return pointer ? pointer->get() : nullptr;
  }
  const Dict* dict() const noexcept { return shared<const Dict>(); }
  Namespace* space() const noexcept { return shared<Namespace>(); }
  const Sequence* sequence() const noexcept { return shared<const Sequence>(); }
  // A list, a tuple or a range, which have places.
  const Sequence* row() const noexcept {
    const Sequence* s = sequence();
    return s && s->kind <= Sequence::Kind::range ? s : nullptr;
  }
  const List* list(Sequence::Kind kind) const noexcept {  // the items of a sequence of this kind, or null
    const Sequence* s = sequence();
    return s && s->kind == kind ? &s->items : nullptr;
  }
  const std::string* text() const noexcept { return is<Text>() ? get<Text>()->bytes.get() : nullptr; }
  bool safe() const noexcept { return is<Text>() && get<Text>()->safe; }
};

// In the order in which keys came, as Python's.
class Dict {
 public:
  const Value* find(const Value& key) const;  // null where there is none, or where it cannot be a key
  void set(Value key, Value value);           // Throws Error for what cannot be a key.
  const std::vector<std::pair<Value, Value>>& entries() const noexcept { return entries_; }
  int depth() const noexcept { return depth_; }

 private:
  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_map<std::string, std::size_t> places_;
  int depth_ = 1;
};
struct Namespace {
  Dict values;
};

// Making one counts as work.
Value text(std::string_view bytes, bool safe = false);
Value list(List items, Sequence::Kind kind = Sequence::Kind::list);
Value dict(Dict entries);
Value function(std::string name, std::function<Value(Arguments&)> call);
Value undefined(std::string why);
inline Value none() { return {None{}}; }
inline Value boolean(bool value) { return {value}; }
inline Value integer(std::size_t value) { return {static_cast<std::int64_t>(value)}; }

bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
bool less(const Value& a, const Value& b);              // Throws Error for kinds that have no order.
std::optional<std::int64_t> whole(const Value& value);  // an integer; true and false are 1 and 0
std::optional<double> real(const Value& value);         // any number
std::string key_of(const Value& value);                 // alike for what is equal; Throws Error for what has no hash
List items_of(const Value& value);                      // what a loop goes over; Throws Error. It empties a generator.
List pairs_of(const Dict& all);                         // its items, each a tuple
std::string kind_of(const Value& value);                // "str"
std::string shown(const Value& value);                  // as str() of Python
std::string represented(const Value& value);            // as repr() of Python

// As json.loads() of Python; where a key comes twice, its last value counts. Throws Error (data), also for integers
// beyond 64 bits and more than 90 levels.
Value from_json(std::string_view json, const io::Origin& origin);
struct JsonStyle {
  bool ascii = false, sorted = false, lines = false;
  std::string indent{}, between = ", ", after_key = ": ";
};
std::string json_text(const Value& value, const JsonStyle& style, std::size_t level = 0);  // as json.dumps()

// A run may do only so much, counted in bytes; this holds what is left. Without one nothing is counted.
class Budget {
 public:
  Budget();
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;
  std::size_t left;

 private:
  Budget* before_;
};
void charge(std::size_t work);  // Throws Error when the run has done too much.
// Counts a search, which compares every byte of one text with every byte of the other at worst.
inline void charge_search(std::string_view in, std::string_view what) {
  charge((in.size() / 16 + 1) * (what.size() / 16 + 1));
}

[[noreturn]] void failed(const std::string& why);        // as Jinja fails
[[noreturn]] void unsupported(const std::string& what);  // what Jinja has, and this interpreter lacks

}  // namespace attn::jinja
