#include "jinja/json.hpp"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace attn::jinja {
namespace {

using Json = nlohmann::json;

class Reader : public nlohmann::json_sax<Json> {
 public:
  explicit Reader(const io::Origin& origin) : origin_(origin) {}

  bool null() override { return add(none()); }
  bool boolean(bool value) override { return add({value}); }
  bool number_integer(std::int64_t value) override { return add({value}); }
  bool number_unsigned(std::uint64_t value) override {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) beyond(std::to_string(value));
    return add({static_cast<std::int64_t>(value)});
  }
  bool number_float(double value, const std::string& written) override {
    if (written.find_first_of(".eE") == std::string::npos) beyond(written);
    return add({value});
  }
  bool string(std::string& value) override { return add(text(std::move(value))); }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(true); }
  bool key(std::string& name) override {
    open_.back().key = std::move(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t at, const std::string&, const Json::exception&) override {
    origin_.fail("JSON", "none at byte " + std::to_string(at));
  }

  Value result{};

 private:
  struct Open {
    bool object;
    std::string key;
    Dict entries;
    List items;
  };

  [[noreturn]] void beyond(const std::string& number) const {
    origin_.fail("integers of 64 bits", io::excerpt(number));
  }

  bool open(bool object) {
    if (open_.size() == 90) origin_.fail("JSON of at most 90 levels", "more");
    open_.push_back({object, {}, {}, {}});
    return true;
  }
  bool close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    return add(done.object ? dict(std::move(done.entries)) : list(std::move(done.items)));
  }
  bool add(Value value) {
    if (open_.empty()) {
      result = std::move(value);
    } else if (open_.back().object) {
      open_.back().entries.set(text(std::move(open_.back().key)), std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  const io::Origin& origin_;
  std::vector<Open> open_;
};

}  // namespace

Value from_json(std::string_view json, const io::Origin& origin) {
  Reader reader(origin);
  Json::sax_parse(json, &reader);
  return std::move(reader.result);
}

}  // namespace attn::jinja
