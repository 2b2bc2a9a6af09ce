// The cases of one golden file (generate.py), and comparison with a report of the worst element.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "attn/error.hpp"
#include "attn/io.hpp"
#include "attn/random.hpp"
#include "attn/tensor.hpp"
#include "core/kept.hpp"

namespace golden {

// "rand=3 seed=5": what a case was made from. Keys repeat in programs, so their order is kept.
class Config {
 public:
  explicit Config(std::string line) : line_(std::move(line)) {
    std::istringstream words(line_);
    for (std::string word; words >> word;) {
      const auto equals = word.find('=');
      items_.emplace_back(word.substr(0, equals), word.substr(equals + 1));
    }
  }
  const std::vector<std::pair<std::string, std::string>>& items() const { return items_; }
  const std::string& line() const { return line_; }
  const std::string& text(const std::string& key) const {
    for (const auto& [k, value] : items_) {
      if (k == key) return value;
    }
    throw std::runtime_error("no " + key + " in " + line_);
  }
  std::int64_t integer(const std::string& key) const { return std::stoll(text(key)); }
  double real(const std::string& key) const { return std::stod(text(key)); }
  bool flag(const std::string& key) const { return integer(key) != 0; }

 private:
  std::string line_;
  std::vector<std::pair<std::string, std::string>> items_;
};

struct Case {
  std::string number, name;
  Config config;
  std::map<std::string, attn::Tensor> expected;  // "output", "x.grad", …
};

// Undefined where the case has none of that name.
inline attn::Tensor given(const Case& c, const std::string& name) {
  const auto found = c.expected.find(name);
  return found == c.expected.end() ? attn::Tensor{} : found->second;
}

// Returns all cases of `kind` in data/<file>.safetensors, and only those of one name if it is given.
inline std::vector<Case> cases(const std::string& file, const std::string& kind, const std::string& name = {}) {
  const auto content = attn::io::load(ATTN_TEST_DATA "/" + file + ".safetensors");
  std::map<std::string, std::map<std::string, attn::Tensor>> by_number;
  for (const auto& [key, tensor] : content.tensors) by_number[key.substr(0, 4)].emplace(key.substr(5), tensor);
  std::vector<Case> found;
  for (const auto& [key, config] : content.metadata) {
    std::istringstream words(key);
    std::string its_kind, number, its_name;
    words >> its_kind >> number >> its_name;
    if (its_kind != kind || (!name.empty() && its_name != name)) continue;
    found.push_back({number, its_name, Config(config), by_number[number]});
  }
  EXPECT_FALSE(found.empty()) << "no " << kind << " " << name << " in " << file;
  return found;
}

// |found - expected| <= relative · |expected| + absolute, where `absolute` may be scaled by the largest
// expected element. All zero: equal, element for element.
struct Tolerance {
  double relative = 0, absolute = 0;
  bool times_largest = false;  // absolute · max(1, max |expected|)
};

inline bool same(double expected, double found, double allowed) {
  if (std::isnan(expected) || std::isinf(expected))
    return expected == found || (expected != expected && found != found);
  return std::abs(found - expected) <= allowed;
}

// Empty when all elements agree; otherwise the worst one.
inline std::string difference(const attn::Tensor& expected, const attn::Tensor& all, Tolerance tolerance = {}) {
  const attn::Tensor found = attn::test::kept(all, expected);
  if (!found.defined()) return "nothing found";
  if (!(expected.shape() == found.shape())) {
    return "expected the shape " + expected.shape().str() + ", found " + found.shape().str();
  }
  if (expected.dtype() != found.dtype()) {
    return std::string("expected ").append(name(expected.dtype())).append(", found ").append(name(found.dtype()));
  }
  const auto flat_expected = expected.contiguous().view({-1}), flat_found = found.contiguous().view({-1});
  double largest = 1;
  for (std::int64_t i = 0; i < expected.numel(); ++i) {
    const double value = std::abs(flat_expected.at({i}));
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  std::int64_t worst = -1, wrong = 0;
  double worst_error = -1;
  for (std::int64_t i = 0; i < expected.numel(); ++i) {
    const double e = flat_expected.at({i}), f = flat_found.at({i});
    const double absolute = tolerance.absolute * (tolerance.times_largest ? largest : 1);
    if (same(e, f, tolerance.relative * std::abs(e) + absolute)) continue;
    ++wrong;
    const double error = std::isfinite(f - e) ? std::abs(f - e) : INFINITY;
    if (error > worst_error) worst = i, worst_error = error;
  }
  if (wrong == 0) return {};
  std::ostringstream text;
  text.precision(17);
  text << wrong << " of " << expected.numel() << " elements differ; worst at flat index " << worst << " of "
       << expected.shape().str() << ": expected " << flat_expected.at({worst}) << ", found " << flat_found.at({worst});
  return text.str();
}

inline void expect_close(const attn::Tensor& expected, const attn::Tensor& found, Tolerance tolerance, const Case& c,
                         const std::string& what) {
  const std::string text = difference(expected, found, tolerance);
  EXPECT_TRUE(text.empty()) << what << ": " << text << "\n  case " << c.number << " " << c.name << ": "
                            << c.config.line();
}

}  // namespace golden
