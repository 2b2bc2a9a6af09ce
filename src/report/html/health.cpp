#include "report/html/health.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attn/error.hpp"
#include "attn/steps.hpp"
#include "report/html/json.hpp"

namespace attn::report_page {
namespace {

constexpr double kDouble = 0x1p-53;  // half the distance of two doubles at 1

// How a dtype rounds: by half a unit in the last place, and by `least` where numbers are too small for that.
struct Rounding {
  double unit, least, largest;
};

Rounding rounding(DType dtype) {
  if (dtype == DType::f16) return {0x1p-11, 0x1p-24, 65504};
  if (dtype == DType::bf16) return {0x1p-8, 0x1p-126, 0x1.fep127};
  if (dtype == DType::f64) return {kDouble, 0x1p-1022, std::numeric_limits<double>::max()};
  return {0x1p-24, 0x1p-126, std::numeric_limits<float>::max()};
}

// The rows of one head of a recorded step as doubles.
struct Rows {
  Tensor tensor;  // undefined where the step is not there
  Rounding rounds{};
  std::int64_t columns = 0;

  explicit operator bool() const { return tensor.defined(); }
  const double* operator[](std::int64_t row) const { return tensor.data<double>() + row * columns; }
};

constexpr std::int64_t kRows = 128;  // of a head: more are not computed again

const Tensor* recorded(const Block& block, std::string_view name) {
  const auto at = std::ranges::find(block.recorded, name, &Steps::value_type::first);
  return at == block.recorded.end() ? nullptr : &at->second;
}

Rows rows_of(const Block& block, std::string_view name, std::int64_t head) {
  const Tensor* step = recorded(block, name);
  if (step == nullptr) return {};
  const Tensor own = of_head(*step, head, block.weights().size(0));
  return {own.to(DType::f64).contiguous(), rounding(step->dtype()), own.size(-1)};
}

// The first of these steps that is there; in a module without projections the inputs are all of them.
Rows operands(const Block& block, std::initializer_list<std::string_view> names, std::int64_t head) {
  for (const std::string_view name : names) {
    if (Rows rows = rows_of(block, name, head)) return rows;
  }
  const bool projects =
      block.find("queries") || block.find("scaled") || block.weights().size(1) != block.weights().size(2);
  return projects ? Rows{} : rows_of(block, "inputs", head);
}

// Throws Error (shape) where vectors that are multiplied, or summed to others, are not of one size.
void require_size(std::string_view what, const Rows& rows, std::int64_t size) {
  if (rows.columns == size) return;
  throw Error(Error::Kind::shape, "report", std::string(what) + " of " + std::to_string(size) + " numbers",
              std::to_string(rows.columns));
}

std::string_view softmax_input_of(const Block& block) {
  return attn::softmax_input([&](std::string_view step) { return block.find(step) != nullptr; });
}

// Calls f(block, head) for all heads.
template <class F>
void for_heads(const Blocks& blocks, const F& f) {
  for (const Block& block : blocks.blocks) {
    for (std::int64_t head = 0; head < block.weights().size(0); ++head) f(block, head);
  }
}

// Numbers beside what they must be: of all, the one that is nearest to the bound of its rounding, or furthest past it.
class Comparison {
 public:
  Comparison(std::string name, std::string what) : check_{.name = std::move(name)}, what_(std::move(what)) {}

  void add(double found, double exact, double bound) {
    ++count_;
    double off = found == exact ? 0 : std::abs(found - exact);
    if (std::isnan(off)) off = INFINITY;
    const double share = off == 0 ? 0 : off / bound;
    if (share <= share_) return;
    share_ = share, check_.value = off, check_.bound = bound;
  }

  // Without a name where nothing was compared.
  Check result(const Blocks& blocks) && {
    check_.holds = share_ <= 1;
    const std::string_view dtype = attn::name(recorded(blocks.blocks.front(), "weights")->dtype());
    check_.told = "of " + std::to_string(count_) + " " + what_ + " the worst is " + short_number(check_.value, 2) +
                  " off, where rounding to " + std::string(dtype) + " allows " + short_number(check_.bound, 2);
    if (count_ == 0) check_.name.clear();
    return std::move(check_);
  }

 private:
  Check check_;
  std::string what_;
  std::int64_t count_ = 0;
  double share_ = -1;
};

// A row of n weights: each is rounded, and so is the sum that they were divided by. Frameworks sum float32 and 16-bit
// floats in float32, float64 in itself.
double row_bound(std::int64_t n, const Rounding& rounds) {
  const double count = static_cast<double>(n), sums = std::min(rounds.unit, 0x1p-24);
  return 2 * rounds.unit + count * (sums + rounds.least);
}

// Where a sink takes its part, the weights and it sum to 1; without the scores its weight is not known.
Check row_sums(const Blocks& blocks) {
  const bool sinks = std::ranges::any_of(blocks.blocks, [](const Block& b) { return b.sinks.defined(); });
  Comparison sums(
      sinks ? "each row of weights sums to 1 at most: a sink has the rest" : "each row of weights sums to 1", "sums");
  std::int64_t empty = 0;
  for_heads(blocks, [&](const Block& block, std::int64_t head) {
    const Rows weights = rows_of(block, "weights", head);
    for (std::int64_t i = 0; i < blocks.queries; ++i) {
      double sum = 0;
      std::int64_t seen = 0;
      for (std::int64_t j = 0; j < blocks.keys; ++j) sum += weights[i][j], seen += weights[i][j] != 0;
      empty += seen == 0;
      if (seen == 0) continue;
      sums.add(block.sinks.defined() ? std::max(sum, 1.0) : sum, 1, row_bound(blocks.keys, weights.rounds));
    }
  });
  Check check = std::move(sums).result(blocks);
  if (empty != 0) check.told += "; " + std::to_string(empty) + " rows see no key and are 0";
  return check;
}

// Scores that may be -inf on purpose.
bool may_forbid(std::string_view step) {
  return step == "scored" || step == "biased" || step == "relative" || step == "alibi" || step == "masked";
}

Check finite(const Blocks& blocks) {
  Check check{.name = "every value is a number"};
  std::int64_t nan = 0, inf = 0;
  for (const Block& block : blocks.blocks) {
    for (const auto& [name, tensor] : block.recorded) {
      const Tensor values = tensor.to(DType::f64);
      for (std::int64_t i = 0; i < values.numel(); ++i) {
        const double x = values.data<double>()[i];
        nan += std::isnan(x);
        inf += std::isinf(x) && !(x < 0 && may_forbid(name));
      }
    }
  }
  check.value = static_cast<double>(nan + inf);
  check.holds = nan + inf == 0;
  check.told = nan + inf == 0
                   ? "no NaN and no infinity in any step"
                   : std::to_string(nan) + " NaN and " + std::to_string(inf) + " infinite values in the steps";
  return check;
}

// Weight on keys that the mask forbids, of what flows on: dropped where there is dropout.
Check leak(const Blocks& blocks) {
  Check check{.name = "masked keys have no weight"};
  bool any = false;
  for_heads(blocks, [&](const Block& block, std::int64_t head) {
    const Rows masked = rows_of(block, "masked", head);
    if (!masked) return;
    any = true;
    for (const char* step : {"weights", "dropped"}) {
      const Rows weights = rows_of(block, step, head);
      for (std::int64_t i = 0; weights && i < blocks.queries * blocks.keys; ++i) {
        const double weight = std::isnan(weights[0][i]) ? INFINITY : std::abs(weights[0][i]);
        if (masked[0][i] == -INFINITY) check.value = std::max(check.value, weight);
      }
    }
  });
  check.holds = check.value == 0;
  check.told = "the largest weight of a masked key is " + short_number(check.value, 2) + ", and must be 0";
  if (!any) check.name.clear();
  return check;
}

// Σ a_c · b_c in double, where a is not 0, beside what was recorded of it: rounded once from a sum in a wider type.
void add_product(Comparison& to, double found, const Rounding& rounds, std::int64_t n, const double* a, const double* b,
                 std::int64_t step) {
  double sum = 0, size = 0;
  for (std::int64_t c = 0; c < n; ++c) {
    if (a[c] == 0) continue;
    const double term = a[c] * b[c * step];
    sum += term, size += std::abs(term);
  }
  if (!std::isfinite(sum)) return;
  sum = std::clamp(sum, -rounds.largest, rounds.largest);
  to.add(found, sum, rounds.unit * std::abs(sum) + 2 * static_cast<double>(n) * kDouble * size + rounds.least);
}

// The factor from scores to scaled, by the largest score.
double scale_of(const Rows& scores, const Rows& scaled) {
  double most = 0, factor = 1;
  for (std::int64_t i = 0; i < scores.tensor.numel(); ++i) {
    const double s = scores[0][i], t = scaled[0][i];
    if (std::isfinite(s) && std::abs(t) < scaled.rounds.largest && std::abs(s) > most)
      most = std::abs(s), factor = t / s;
  }
  return factor;
}

// scaled = scores · factor, rounded once; the factor has roundings of its own.
void compare_scaled(Comparison& to, const Rows& scores, const Rows& scaled, std::int64_t rows) {
  const double factor = scale_of(scores, scaled);
  const Rounding& rounds = scaled.rounds;
  for (std::int64_t i = 0; i < rows * scores.columns; ++i) {
    const double exact = std::clamp(scores[0][i] * factor, -rounds.largest, rounds.largest);
    if (std::isfinite(exact)) to.add(scaled[0][i], exact, 4 * rounds.unit * std::abs(exact) + rounds.least);
  }
}

// A mask forbids a score or leaves it as it was.
void compare_masked(Comparison& to, const Block& block, std::int64_t head, std::int64_t rows) {
  const Rows masked = rows_of(block, "masked", head);
  const std::string_view name =
      softmax_input([&](std::string_view step) { return step != "masked" && block.find(step); });
  const Rows before = rows_of(block, name, head);
  for (std::int64_t i = 0; masked && before && i < rows * masked.columns; ++i) {
    if (masked[0][i] != -INFINITY && !std::isnan(before[0][i])) to.add(masked[0][i], before[0][i], 0);
  }
}

Check float64_scores(const Blocks& blocks) {
  Comparison compared("float64 gives the same scores", "scores");
  for_heads(blocks, [&](const Block& block, std::int64_t head) {
    const Rows scores = rows_of(block, "scores", head), scaled = rows_of(block, "scaled", head);
    const std::int64_t rows = std::min(blocks.queries, kRows);
    if (!scores) return;
    const Rows q = operands(block, {"rotated queries", "queries"}, head);
    const Rows k = operands(block, {"rotated keys", "keys"}, head);
    if (q && k) require_size("keys", k, q.columns);
    for (std::int64_t i = 0; q && k && i < rows; ++i) {
      for (std::int64_t j = 0; j < blocks.keys; ++j) {
        add_product(compared, scores[i][j], scores.rounds, q.columns, q[i], k[j], 1);
      }
    }
    if (scaled) compare_scaled(compared, scores, scaled, rows);
    compare_masked(compared, block, head, rows);
  });
  return std::move(compared).result(blocks);
}

// The softmax of a row of scores and of the sink; empty where a score is no number.
std::vector<double> softmax(const double* scores, std::int64_t n, double sink) {
  double most = sink, sum = 0;
  for (std::int64_t j = 0; j < n; ++j) {
    if (std::isnan(scores[j]) || scores[j] == INFINITY) return {};
    most = std::max(most, scores[j]);
  }
  std::vector<double> weights(static_cast<std::size_t>(n), 0.0);
  if (most == -INFINITY) return weights;  // every key is masked
  for (std::int64_t j = 0; j < n; ++j) sum += weights[static_cast<std::size_t>(j)] = std::exp(scores[j] - most);
  for (double& w : weights) w /= sum + std::exp(sink - most);
  return weights;
}

// By the scores that softmax took, so that their own rounding, however large they are, moves no weight here.
Check float64_weights(const Blocks& blocks) {
  Comparison compared("float64 gives the same weights", "weights");
  for_heads(blocks, [&](const Block& block, std::int64_t head) {
    const Rows scores = rows_of(block, softmax_input_of(block), head), weights = rows_of(block, "weights", head);
    if (!scores) return;
    const double sink = block.sinks.defined() ? block.sinks.to(DType::f64).data<double>()[head] : -INFINITY;
    const auto n = static_cast<double>(blocks.keys);
    for (std::int64_t i = 0; i < std::min(blocks.queries, kRows); ++i) {
      const std::vector<double> exact = softmax(scores[i], blocks.keys, sink);
      for (std::size_t j = 0; j < exact.size(); ++j) {
        // A difference of scores is as exact as its size, and by its logarithm a weight tells that size.
        const double size = exact[j] > 0 ? n + 4 - std::log(exact[j]) : 0;
        compared.add(weights[i][static_cast<std::int64_t>(j)], exact[j],
                     (weights.rounds.unit + 2 * size * kDouble) * exact[j] + weights.rounds.least);
      }
    }
  });
  return std::move(compared).result(blocks);
}

Check float64_contexts(const Blocks& blocks) {
  Comparison compared("float64 gives the same contexts", "numbers");
  for_heads(blocks, [&](const Block& block, std::int64_t head) {
    const Rows context = rows_of(block, "context", head), weights = operands(block, {"dropped", "weights"}, head);
    const Rows values = operands(block, {"values"}, head);
    if (!context || !values || softmax_input_of(block).empty()) return;  // means of the past are summed without weights
    require_size("values", values, context.columns);
    for (std::int64_t i = 0; i < std::min(blocks.queries, kRows); ++i) {
      for (std::int64_t c = 0; c < context.columns; ++c) {
        add_product(compared, context[i][c], context.rounds, blocks.keys, weights[i], values[0] + c, values.columns);
      }
    }
  });
  return std::move(compared).result(blocks);
}

}  // namespace

std::vector<Check> health(const Blocks& blocks) {
  std::vector<Check> checks{row_sums(blocks),       finite(blocks),          leak(blocks),
                            float64_scores(blocks), float64_weights(blocks), float64_contexts(blocks)};
  std::erase_if(checks, [](const Check& check) { return check.name.empty(); });
  return checks;
}

}  // namespace attn::report_page
