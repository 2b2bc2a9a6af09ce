// What expressions of a template yield: Python's values, as far as JSON and Jinja make them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

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
  enum class Kind { list, tuple, range, keys, values, items } kind;
  List items;
  int depth;
};
// A generator: what was taken from it is gone.
struct Stream {
  List items;
  std::size_t next;
};
struct Namespace {
  std::map<std::string, Value> values;
};
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
               std::shared_ptr<const Dict>, std::shared_ptr<Stream>, std::shared_ptr<Namespace>,
               std::shared_ptr<const Function>, std::shared_ptr<Loop>>
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
  const std::string* text() const noexcept {
    const Text* text = get<Text>();
    return text ? text->bytes.get() : nullptr;
  }
  bool safe() const noexcept {
    const Text* text = get<Text>();
    return text && text->safe;
  }
  const Dict* dict() const noexcept;
  const Sequence* sequence() const noexcept;
  const List* list(Sequence::Kind kind) const noexcept;  // the items of a sequence of this kind, or null
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

// Making one counts as work.
Value text(std::string bytes, bool safe = false);
Value list(List items, Sequence::Kind kind = Sequence::Kind::list);
Value dict(Dict entries);
Value stream(List items);
Value function(std::string name, std::function<Value(Arguments&)> call);
Value undefined(std::string why);
inline Value none() { return {None{}}; }
inline Value boolean(bool value) { return {value}; }
Value integer(std::size_t value);

bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
bool less(const Value& a, const Value& b);             // Throws Error for kinds that have no order.
bool is_number(const Value& value);                    // true and false are 1 and 0
bool whole(const Value& value, std::int64_t& number);  // an integer, or true or false
double real(const Value& value);                       // of a number
std::string key_of(const Value& value);                // alike for what is equal; Throws Error for what has no hash
List items_of(const Value& value);                     // what a loop goes over; Throws Error. A stream is empty then.
List pairs_of(const Dict& all);                        // its items, each a tuple
std::size_t length_of(const Value& value);             // Throws Error.
std::string kind_of(const Value& value);               // "str"
std::string shown(const Value& value);                 // as str() of Python
std::string represented(const Value& value);           // as repr() of Python
std::string json_text(const Value& value, const struct JsonStyle& style, std::size_t level = 0);

struct JsonStyle {
  bool ascii = false, sorted = false, lines = false;
  std::string indent{}, between = ", ", after_key = ": ";
};

// What a run may still do, counted in bytes. Without one nothing is counted.
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

[[noreturn]] void failed(const std::string& why);        // as Jinja fails
[[noreturn]] void unsupported(const std::string& what);  // what Jinja has, and this interpreter lacks

}  // namespace attn::jinja
