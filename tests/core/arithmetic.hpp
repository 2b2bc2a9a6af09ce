// The steps of a trace again, each from the steps recorded before it and from the weights: plain loops in float64,
// which share no code with the library.
#pragma once

#include <set>

#include "attn/trace.hpp"
#include "core/testing.hpp"

namespace attn::test {

constexpr double kUnit = 0x1p-24;  // float32's unit roundoff

// A number, and how far float32's rounding may move it.
struct Number {
  double value = 0, bound = 0;
};

// Σ a(i) · b(i) + bias, as float32 may sum it.
template <class A, class B>
Number product(std::int64_t n, const A& a, const B& b, double bias = 0) {
  double sum = bias, size = std::fabs(bias);
  for (std::int64_t i = 0; i < n; ++i) {
    const double term = a(i) == 0 ? 0 : a(i) * b(i);
    sum += term, size += std::fabs(term);
  }
  return {sum, static_cast<double>(n + 3) * kUnit * size};
}

// Any tensor as doubles: (rows, columns) or (heads, rows, columns); at(head, row, column).
struct Doubles {
  std::vector<double> all;
  std::int64_t heads = 1, rows = 1, columns = 0;

  Doubles() = default;
  explicit Doubles(const Tensor& t) {
    if (!t.defined()) return;
    all = values(t);
    columns = t.size(-1);
    if (t.rank() > 1) rows = t.size(-2);
    if (t.rank() > 2) heads = t.size(-3);
  }
  double at(std::int64_t h, std::int64_t i, std::int64_t c) const {
    return all[static_cast<std::size_t>((h * rows + i) * columns + c)];
  }
  double at(std::int64_t i, std::int64_t c) const { return at(0, i, c); }
  double operator[](std::int64_t c) const { return all.empty() ? 0 : all[static_cast<std::size_t>(c)]; }
};

// The steps of one module in a trace, of one text.
class Recorded {
 public:
  // Steps named prefix + step; of a batch the text `item`, and one text without a batch for -1.
  Recorded(const Trace& trace, const std::string& prefix, std::int64_t item = -1) : prefix_(prefix) {
    for (const auto& [name, tensor] : trace.steps()) {
      if (!name.starts_with(prefix)) continue;
      const std::string step = name.substr(prefix.size());
      if (step.find('.') != std::string::npos) continue;
      EXPECT_FALSE(steps_.contains(step)) << name << " is recorded twice";
      steps_[step] = Doubles(item < 0 || tensor.rank() < 3 ? tensor : tensor.select(0, item));  // some are of all texts
      left_.insert(step);
    }
    EXPECT_FALSE(steps_.empty()) << prefix;
  }

  bool has(const std::string& step) const { return steps_.contains(step); }
  const Doubles& operator[](const std::string& step) const { return steps_.at(step); }
  const Doubles& first_of(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (has(name)) return steps_.at(name);
    }
    throw std::out_of_range(prefix_);
  }

  // Every number of the step is number(head, row, column), within its bound.
  template <class F>
  void expect(const std::string& step, const F& number) {
    if (!has(step)) return;
    left_.erase(step);
    const Doubles& found = steps_.at(step);
    for (std::int64_t h = 0; h < found.heads; ++h) {
      for (std::int64_t i = 0; i < found.rows; ++i) {
        for (std::int64_t c = 0; c < found.columns; ++c) {
          const Number wanted = number(h, i, c);
          const double is = found.at(h, i, c);
          if (is == wanted.value || std::fabs(is - wanted.value) <= wanted.bound) continue;
          FAIL() << prefix_ << step << " (" << h << ", " << i << ", " << c << ") is " << is << ", its arithmetic gives "
                 << wanted.value << " within " << wanted.bound;
        }
      }
    }
  }

  // Nothing was recorded that no arithmetic was expected of.
  void expect_all_known() const {
    EXPECT_THAT(left_, testing::IsEmpty()) << prefix_;
    EXPECT_TRUE(has("weights"));
  }

 private:
  std::string prefix_;
  std::map<std::string, Doubles> steps_;
  std::set<std::string> left_;
};

// The settings that the steps from queries to merged are made with.
struct Wiring {
  double scale = 1, softcap = 0, dropout = 0;
  std::int64_t window = 0;  // of causal masks; 0: all before a query
  bool causal = false;
  std::vector<double> rates = {};  // radians a position of each pair (c, c + pairs); none: nothing turns
  bool interleaved = false;        // pairs are (2c, 2c + 1)
  double turn_factor = 1;
  std::vector<double> sinks = {};  // one a head
};

inline void expect_turns(Recorded& steps, const std::string& name, const Wiring& w) {
  if (w.rates.empty()) return;
  ASSERT_TRUE(steps.has("rotated " + name));
  const auto pairs = static_cast<std::int64_t>(w.rates.size());
  const Doubles& from = steps[name];
  const std::int64_t group = steps["rotated " + name].heads / from.heads;  // of queries that share a key
  steps.expect("rotated " + name, [&](std::int64_t head, std::int64_t i, std::int64_t c) -> Number {
    const std::int64_t h = head / group;
    if (c >= 2 * pairs) return {from.at(h, i, c), 0};
    const std::int64_t pair = w.interleaved ? c / 2 : c % pairs;
    const bool second = w.interleaved ? c % 2 == 1 : c >= pairs;
    const std::int64_t other = w.interleaved ? c ^ 1 : second ? c - pairs : c + pairs;
    const double angle = static_cast<double>(i) * w.rates[static_cast<std::size_t>(pair)];
    const double a = from.at(h, i, c) * w.turn_factor, b = from.at(h, i, other) * w.turn_factor;
    return {a * std::cos(angle) + (second ? b : -b) * std::sin(angle),
            (5 + angle) * kUnit * (std::fabs(a) + std::fabs(b))};
  });
}

inline bool sees(const Wiring& w, std::int64_t query, std::int64_t key) {
  return !w.causal || (key <= query && (w.window == 0 || key > query - w.window));
}

// One row's softmax, and the sink's part in it.
inline std::vector<double> softmax_of(const Doubles& scores, std::int64_t h, std::int64_t i, const double* sink) {
  double most = sink ? *sink : -kInf, sum = 0;
  for (std::int64_t j = 0; j < scores.columns; ++j) most = std::max(most, scores.at(h, i, j));
  std::vector<double> weights;
  for (std::int64_t j = 0; j < scores.columns; ++j) {
    weights.push_back(most == -kInf ? 0 : std::exp(scores.at(h, i, j) - most));
    sum += weights.back();
  }
  if (sink) sum += std::exp(*sink - most);
  for (double& x : weights) x = sum == 0 ? 0 : x / sum;
  return weights;
}

// scores to weights, of those that were recorded; queries and keys may be in groups.
inline void expect_weights(Recorded& steps, const Wiring& w) {
  const Doubles& q = steps.first_of({"rotated queries", "queries", "inputs"});
  const Doubles& k = steps.first_of({"rotated keys", "keys", "inputs"});
  const std::int64_t group = steps["weights"].heads / k.heads;
  steps.expect("scores", [&](std::int64_t h, std::int64_t i, std::int64_t j) {
    return product(
        q.columns, [&](std::int64_t c) { return q.at(h, i, c); },
        [&](std::int64_t c) { return k.at(h / group, j, c); });
  });
  const auto exact = [](double x) { return Number{x, 3 * kUnit * std::fabs(x)}; };
  std::string last = "scores";
  const auto next = [&](const char* step, const auto& f) {
    if (!steps.has(step)) return;
    const Doubles& before = steps[last];
    steps.expect(step, [&](std::int64_t h, std::int64_t i, std::int64_t j) { return f(before.at(h, i, j), i, j); });
    last = step;
  };
  using Int = std::int64_t;
  next("scaled", [&](double s, Int, Int) { return exact(s * w.scale); });
  next("capped", [&](double s, Int, Int) { return exact(w.softcap * std::tanh(s / w.softcap)); });
  next("masked", [&](double s, Int i, Int j) { return Number{sees(w, i, j) ? s : -kInf, 0}; });
  EXPECT_EQ(steps.has("capped"), w.softcap > 0);
  EXPECT_EQ(steps.has("masked"), w.causal);
  EXPECT_EQ(steps.has("sinks"), !w.sinks.empty());
  steps.expect("sinks", [&](Int h, Int, Int) { return Number{w.sinks[static_cast<std::size_t>(h)], 0}; });
  const Doubles& scores = steps[last];
  steps.expect("weights", [&](Int h, Int i, Int j) {
    const double* sink = w.sinks.empty() ? nullptr : &w.sinks[static_cast<std::size_t>(h)];
    return exact(softmax_of(scores, h, i, sink)[static_cast<std::size_t>(j)]);
  });
}

// Checks the weights that were dropped or kept, the context, and the heads side by side.
inline void expect_contexts(Recorded& steps, const Wiring& w) {
  using Int = std::int64_t;
  const Doubles& weights = steps["weights"];
  EXPECT_EQ(steps.has("dropped"), w.dropout > 0);
  steps.expect("dropped", [&](Int h, Int i, Int j) {
    const double kept = weights.at(h, i, j) / (1 - w.dropout);
    return steps["dropped"].at(h, i, j) == 0 ? Number{} : Number{kept, 3 * kUnit * kept};
  });
  const Doubles& flow = steps.first_of({"dropped", "weights"});
  const Doubles& v = steps.first_of({"values", "inputs"});
  const Int group = weights.heads / v.heads;
  steps.expect("context", [&](Int h, Int i, Int c) {
    return product(
        flow.columns, [&](Int j) { return flow.at(h, i, j); }, [&](Int j) { return v.at(h / group, j, c); });
  });
  if (!steps.has("context")) return;
  const Doubles& context = steps["context"];
  steps.expect("merged", [&](Int, Int i, Int c) {
    return Number{context.at(c / context.columns, i, c % context.columns), 0};
  });
}

// step = from · weightᵀ + bias, weight (out, in); of several heads each its own rows.
inline void expect_projection(Recorded& steps, const std::string& step, const std::string& from, const Doubles& weight,
                              const Doubles& bias) {
  if (!steps.has(step)) return;
  const Doubles& x = steps[from];
  const std::int64_t columns = steps[step].columns;
  steps.expect(step, [&](std::int64_t h, std::int64_t i, std::int64_t c) {
    return product(
        x.columns, [&](std::int64_t k) { return x.at(i, k); },
        [&](std::int64_t k) { return weight.at(h * columns + c, k); }, bias[h * columns + c]);
  });
}

}  // namespace attn::test
