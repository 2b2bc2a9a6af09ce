#include "report/html/health.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "attn/error.hpp"
#include "attn/steps.hpp"
#include "core/processors.hpp"
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

// One head of a block. Its steps become doubles when they are first asked for.
class Head {
 public:
  Head(const Block& of, std::int64_t index)
      : block(of), head(index), queries_(of.weights().size(1)), keys_(of.weights().size(2)) {}

  // All rows of a step of pairs, float64 where they are not float32: weights that leak are looked for in every one.
  Tensor whole(std::string_view name) const {
    const Tensor* step = recorded(block, name);
    if (step == nullptr) return {};
    const Tensor own = of_head(*step, head, block.weights().size(0));
    return (own.dtype() == DType::f32 ? own : own.to(DType::f64)).contiguous();
  }

  const Rows& operator()(std::string_view name) {
    const auto [at, is_new] = rows_.try_emplace(name);
    if (is_new) at->second = rows_of(name);
    return at->second;
  }

  // The first of these steps that is there; in a module without projections the inputs are all of them.
  const Rows& operands(std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      if (const Rows& rows = (*this)(name)) return rows;
    }
    const bool projects = block.find("queries") || block.find("scaled") || queries() != keys();
    return (*this)(projects ? "" : "inputs");
  }

  std::int64_t queries() const { return queries_; }
  std::int64_t keys() const { return keys_; }
  std::int64_t checked() const { return std::min(queries_, kRows); }

  const Block& block;
  const std::int64_t head;

 private:
  Rows rows_of(std::string_view name) const {
    const Tensor* step = recorded(block, name);
    if (step == nullptr) return {};
    Tensor own = of_head(*step, head, block.weights().size(0));
    if (find_step(name)->pairs()) own = own.slice(0, 0, checked());
    return {own.to(DType::f64).contiguous(), rounding(step->dtype()), own.size(-1)};
  }

  std::int64_t queries_, keys_;
  std::map<std::string_view, Rows> rows_;
};

// Throws Error (shape) where vectors that are multiplied, or summed to others, are not of one size.
void require_size(std::string_view what, const Rows& rows, std::int64_t size) {
  if (rows.columns == size) return;
  throw Error(Error::Kind::shape, "report", std::string(what) + " of " + std::to_string(size) + " numbers",
              std::to_string(rows.columns));
}

std::string_view softmax_input_of(const Block& block) {
  return attn::softmax_input([&](std::string_view step) { return block.find(step) != nullptr; });
}

Check result(const Comparison& compared, std::string name, std::string_view what, std::string_view bound) {
  Check check{std::move(name), compared.share <= 1, compared.value, compared.bound, {}};
  check.told = "of " + std::to_string(compared.count) + " " + std::string(what) + " the worst is " +
               short_number(check.value, 2) + " off, where " + std::string(bound) + " " + short_number(check.bound, 2);
  if (compared.count == 0) check.name.clear();
  return check;
}

// A row of n weights: each is rounded, and so is the sum that they were divided by. Frameworks sum float32 and 16-bit
// floats in float32, float64 in itself.
double row_bound(std::int64_t n, const Rounding& rounds) {
  const double count = static_cast<double>(n), sums = std::min(rounds.unit, 0x1p-24);
  return 2 * rounds.unit + count * (sums + rounds.least);
}

// How many of n numbers are left without the zeros at their end?
template <class T>
std::int64_t without_last_zeros(const T* row, std::int64_t n) {
  constexpr std::int64_t block = 32;
  const auto is_zero = [row](std::int64_t end) {
    std::int32_t count = 0;  // g++ makes vectors of a count
    for (std::int64_t j = end - block; j < end; ++j) count += row[j] != 0;
    return count == 0;
  };
  while (n >= block && is_zero(n)) n -= block;
  while (n > 0 && row[n - 1] == 0) --n;
  return n;
}

// Where a sink takes its part, the weights and it sum to 1; without the scores its weight is not known.
template <class T>
void add_row_sums(const Head& at, const Tensor& weights, HeadHealth& health) {
  const Rounding rounds = rounding(recorded(at.block, "weights")->dtype());
  for (std::int64_t i = 0; i < at.queries(); ++i) {
    const T* row = weights.data<T>() + i * at.keys();
    const std::int64_t seen = without_last_zeros(row, at.keys());
    health.empty += seen == 0;
    if (seen == 0) continue;
    double sum = 0;
    for (std::int64_t j = 0; j < seen; ++j) sum += row[j];
    health.sums.add(at.block.sinks.defined() ? std::max(sum, 1.0) : sum, 1, row_bound(at.keys(), rounds));
  }
}

void add_row_sums(const Head& at, HeadHealth& health) {
  if (at.block.find("mapped keys")) return;  // effective weights, which softmax did not make
  const Tensor weights = at.whole("weights");
  weights.dtype() == DType::f32 ? add_row_sums<float>(at, weights, health) : add_row_sums<double>(at, weights, health);
}

// Scores that may be -inf on purpose.
bool may_forbid(std::string_view step) {
  return step == "scored" || step == "biased" || step == "relative" || step == "alibi" || step == "masked";
}

struct Specials {
  std::int64_t nan = 0, plus = 0, minus = 0;
};

template <class T>
ATTN_FOR_EACH_PROCESSOR Specials specials_of(const T* x, std::int64_t n) {
  Specials found;
  for (std::int64_t i = 0; i < n; ++i)
    found.nan += x[i] != x[i], found.plus += x[i] == INFINITY, found.minus += x[i] == -INFINITY;
  return found;
}

void add_special(const std::string& name, const Tensor& tensor, HeadHealth& health) {
  const Tensor whole = tensor.to(tensor.dtype() == DType::f64 ? DType::f64 : DType::f32).contiguous();
  const Specials found = whole.dtype() == DType::f64 ? specials_of(whole.data<double>(), whole.numel())
                                                     : specials_of(whole.data<float>(), whole.numel());
  health.nan += found.nan;
  health.inf += found.plus + (may_forbid(name) ? 0 : found.minus);
}

template <class T>
ATTN_FOR_EACH_PROCESSOR bool leaks(const T* masked, const T* weights, std::int64_t n) {
  bool any = false;
  for (std::int64_t i = 0; i < n; ++i) any |= (masked[i] == -INFINITY) & (weights[i] != 0);
  return any;
}

template <class T>
double leak_of(const Tensor& masked, const Tensor& weights) {
  const T *m = masked.data<T>(), *w = weights.data<T>();
  double leak = 0;
  if (!leaks(m, w, masked.numel())) return leak;
  for (std::int64_t i = 0; i < masked.numel(); ++i) {
    if (m[i] == -INFINITY) leak = std::max(leak, std::isnan(w[i]) ? INFINITY : std::abs(static_cast<double>(w[i])));
  }
  return leak;
}

// Weight on keys that the mask forbids, of what flows on: dropped where there is dropout.
void add_leak(const Head& at, HeadHealth& health) {
  const Tensor masked = at.whole("masked");
  if (!masked.defined()) return;
  health.masked = true;
  for (const char* step : {"weights", "dropped"}) {
    const Tensor weights = at.whole(step);
    if (!weights.defined()) continue;
    const bool narrow = masked.dtype() == DType::f32 && weights.dtype() == DType::f32;
    const double leak =
        narrow ? leak_of<float>(masked, weights) : leak_of<double>(masked.to(DType::f64), weights.to(DType::f64));
    health.leak = std::max(health.leak, leak);
  }
}

// Σ_c a_c · b_cj in double for each j < n, where a_c is not 0, beside what was recorded of it: rounded once from a sum
// in a wider type. b (terms, n)
ATTN_FOR_EACH_PROCESSOR
void add_products(Comparison& to, const double* found, const Rounding& rounds, std::int64_t n, const double* a,
                  const double* b, std::int64_t terms) {
  std::vector<double> sums(static_cast<std::size_t>(n)), sizes(sums.size());
  std::vector<std::int64_t> some;
  for (std::int64_t c = 0; c < terms; ++c) {
    if (a[c] != 0) some.push_back(c);
  }
  std::size_t next = 0;
  for (; next + 4 <= some.size(); next += 4) {  // four terms in their order while a sum is in a register
    const std::array<const double*, 4> x{b + some[next] * n, b + some[next + 1] * n, b + some[next + 2] * n,
                                         b + some[next + 3] * n};
    const std::array<double, 4> f{a[some[next]], a[some[next + 1]], a[some[next + 2]], a[some[next + 3]]};
    for (std::size_t j = 0; j < sums.size(); ++j) {
      const double t0 = f[0] * x[0][j], t1 = f[1] * x[1][j], t2 = f[2] * x[2][j], t3 = f[3] * x[3][j];
      sums[j] = sums[j] + t0 + t1 + t2 + t3;
      sizes[j] = sizes[j] + std::abs(t0) + std::abs(t1) + std::abs(t2) + std::abs(t3);
    }
  }
  for (; next < some.size(); ++next) {
    const double *x = b + some[next] * n, factor = a[some[next]];
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += factor * x[j], sizes[j] += std::abs(factor * x[j]);
  }
  for (std::size_t j = 0; j < sums.size(); ++j) {
    if (!std::isfinite(sums[j])) continue;
    const double sum = std::clamp(sums[j], -rounds.largest, rounds.largest);
    const double bound = rounds.unit * std::abs(sum) + 2 * static_cast<double>(terms) * kDouble * sizes[j];
    to.add(found[j], sum, bound + rounds.least);
  }
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
void compare_masked(Comparison& to, Head& at) {
  const Rows& masked = at("masked");
  const Rows& before =
      at(softmax_input([&](std::string_view step) { return step != "masked" && at.block.find(step); }));
  for (std::int64_t i = 0; masked && before && i < at.checked() * masked.columns; ++i) {
    if (masked[0][i] != -INFINITY && !std::isnan(before[0][i])) to.add(masked[0][i], before[0][i], 0);
  }
}

void add_scores(Head& at, Comparison& compared) {
  const Rows& scores = at("scores");
  if (!scores) return;
  const Rows& q = at.operands({"rotated queries", "queries"});
  const Rows& k = at.operands({"rotated keys", "keys"});
  if (q && k) {
    require_size("keys", k, q.columns);
    const Tensor columns = k.tensor.transpose(0, 1).contiguous();
    for (std::int64_t i = 0; i < at.checked(); ++i) {
      add_products(compared, scores[i], scores.rounds, at.keys(), q[i], columns.data<double>(), q.columns);
    }
  }
  if (const Rows& scaled = at("scaled")) compare_scaled(compared, scores, scaled, at.checked());
  compare_masked(compared, at);
}

// The softmax of a row of scores and of the sink; empty where a score is no number.
std::vector<double> softmax(const double* scores, std::int64_t n, double sink) {
  double most = sink, sum = 0;
  for (std::int64_t j = 0; j < n; ++j) {
    if (std::isnan(scores[j]) || scores[j] == INFINITY) return {};
    most = scores[j] > most ? scores[j] : most;
  }
  std::vector<double> weights(static_cast<std::size_t>(n), 0.0);
  if (most == -INFINITY) return weights;  // every key is masked
  for (std::int64_t j = 0; j < n; ++j) {
    if (scores[j] != -INFINITY) sum += weights[static_cast<std::size_t>(j)] = std::exp(scores[j] - most);
  }
  sum += std::exp(sink - most);
  for (double& w : weights) w /= sum;
  return weights;
}

// By the scores that softmax took, so that their own rounding, however large they are, moves no weight here.
void add_weights(Head& at, Comparison& compared) {
  const Rows &scores = at(softmax_input_of(at.block)), &weights = at("weights");
  if (!scores) return;
  const double sink = at.block.sinks.defined() ? at.block.sinks.to(DType::f64).data<double>()[at.head] : -INFINITY;
  const auto n = static_cast<double>(at.keys());
  for (std::int64_t i = 0; i < at.checked(); ++i) {
    const std::vector<double> exact = softmax(scores[i], at.keys(), sink);
    for (std::size_t j = 0; j < exact.size(); ++j) {
      // A difference of scores is as exact as its size, and by its logarithm a weight tells that size.
      const double size = exact[j] > 0 ? n + 4 - std::log(exact[j]) : 0;
      compared.add(weights[i][static_cast<std::int64_t>(j)], exact[j],
                   (weights.rounds.unit + 2 * size * kDouble) * exact[j] + weights.rounds.least);
    }
  }
}

void add_contexts(Head& at, Comparison& compared) {
  const Rows &context = at("context"), &weights = at.operands({"dropped", "weights"}),
             &values = at.operands({"values"});
  if (!context || !values || softmax_input_of(at.block).empty())  // a recurrence sums no weights, either
    return;                                                       // means of the past are summed without weights
  require_size("values", values, context.columns);
  const Rows& scores = at(softmax_input_of(at.block));
  const bool finite = std::all_of(values[0], values[at.keys()], [](double x) { return std::isfinite(x); });
  for (std::int64_t i = 0; i < at.checked(); ++i) {
    std::vector<double> row(weights[i], weights[i + 1]);
    // A weight of 0 of a key that is seen may stand for a small one, beside which NaN of its value is NaN.
    for (std::size_t j = 0; j < row.size() && scores && !finite; ++j) {
      if (row[j] == 0 && scores[i][static_cast<std::int64_t>(j)] != -INFINITY)
        row[j] = std::numeric_limits<double>::denorm_min();
    }
    add_products(compared, context[i], context.rounds, context.columns, row.data(), values[0], at.keys());
  }
}

}  // namespace

void Comparison::add(double found, double exact, double allowed) {
  ++count;
  double off = found == exact ? 0 : std::abs(found - exact);
  if (std::isnan(off)) off = INFINITY;
  const double part = off == 0 ? 0 : off / allowed;
  if (part > share) share = part, value = off, bound = allowed;
}

void Comparison::add(const Comparison& other) {
  count += other.count;
  if (other.share > share) share = other.share, value = other.value, bound = other.bound;
}

void HeadHealth::add(const HeadHealth& other) {
  for (auto part : {&HeadHealth::sums, &HeadHealth::scores, &HeadHealth::weights, &HeadHealth::contexts}) {
    (this->*part).add(other.*part);
  }
  empty += other.empty, nan += other.nan, inf += other.inf;
  leak = std::max(leak, other.leak);
  masked = masked || other.masked;
}

void Health::add(const Block& block) {
  if (!any_) dtype_ = recorded(block, "weights")->dtype();
  any_ = true;
  sinks_ = sinks_ || block.sinks.defined();
  std::vector<HeadHealth> heads(static_cast<std::size_t>(block.weights().size(0))), steps(block.recorded.size());
  const double operations = 128 * static_cast<double>(block.weights().numel());
  for_each(std::ssize(heads), operations, [&](std::int64_t head) {
    HeadHealth& health = heads[static_cast<std::size_t>(head)];
    Head at(block, head);
    add_row_sums(at, health);
    add_leak(at, health);
    add_scores(at, health.scores);
    add_weights(at, health.weights);
    add_contexts(at, health.contexts);
  });
  for_each(std::ssize(steps), operations / 16, [&](std::int64_t i) {
    const auto& [name, tensor] = block.recorded[static_cast<std::size_t>(i)];
    add_special(name, tensor, steps[static_cast<std::size_t>(i)]);
  });
  for (const auto* all : {&heads, &steps}) {
    for (const HeadHealth& health : *all) sum_.add(health);
  }
}

std::string Health::rounding_allows() const { return "rounding to " + std::string(name(dtype_)) + " allows"; }

Check Health::row_sums() const {
  Check check =
      result(sum_.sums,
             sinks_ ? "each row of weights sums to 1 at most: a sink has the rest" : "each row of weights sums to 1",
             "sums", rounding_allows());
  if (sum_.empty != 0) check.told += "; " + std::to_string(sum_.empty) + " rows see no key and are 0";
  return check;
}

Check Health::finite() const {
  const std::int64_t special = sum_.nan + sum_.inf;
  return {"every value is a number", special == 0, static_cast<double>(special), 0,
          special == 0
              ? "no NaN and no infinity in any step"
              : std::to_string(sum_.nan) + " NaN and " + std::to_string(sum_.inf) + " infinite values in the steps"};
}

Check Health::leak() const {
  return {sum_.masked ? "masked keys have no weight" : "", sum_.leak == 0, sum_.leak, 0,
          "the largest weight of a masked key is " + short_number(sum_.leak, 2) + ", and must be 0"};
}

std::vector<Check> Health::checks() const {
  const std::string rounding = rounding_allows();
  std::vector<Check> checks{
      row_sums(),
      finite(),
      leak(),
      result(sum_.scores, "float64 gives the same scores", "scores", rounding),
      result(sum_.weights, "float64 gives the same weights", "weights", rounding),
      result(sum_.contexts, "float64 gives the same contexts", "numbers", rounding),
      result(kept_, "this page is as exact as 8 bits a number", "numbers kept in 8 bits", "8 bits of their row allow")};
  std::erase_if(checks, [](const Check& check) { return check.name.empty(); });
  return checks;
}

std::vector<Check> health(const Blocks& blocks) {
  Health health;
  for (const Block& block : blocks.blocks) health.add(block);
  return health.checks();
}

}  // namespace attn::report_page
