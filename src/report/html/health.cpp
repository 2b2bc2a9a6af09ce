#include "report/html/health.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "attn/reference.hpp"
#include "report/html/json.hpp"

namespace attn::report_page {
namespace {

namespace ref = reference;

std::span<const float> values(const Tensor& t) { return {t.data<float>(), static_cast<std::size_t>(t.numel())}; }

// Calls f(row) with the keys of each query of each head.
template <class F>
void for_rows(const Tensor& pairs, F&& f) {
  const auto all = values(pairs);
  const auto keys = static_cast<std::size_t>(pairs.size(-1));
  for (std::size_t at = 0; keys != 0 && at < all.size(); at += keys) f(all.subspan(at, keys), at);
}

Check row_sums(const Blocks& blocks) {
  Check check{"each row of weights sums to 1"};
  std::int64_t empty = 0, rows = 0;
  for (const Block& block : blocks.blocks) {
    for_rows(block.weights(), [&](std::span<const float> row, std::size_t) {
      double sum = 0;
      for (const float w : row) sum += w;
      ++rows;
      const bool nothing = std::all_of(row.begin(), row.end(), [](float w) { return w == 0; });
      empty += nothing;
      if (!nothing) check.value = std::max(check.value, std::isnan(sum) ? INFINITY : std::abs(sum - 1));
    });
  }
  constexpr double tolerance = 1e-5;  // float32 sums of some thousand keys
  check.holds = check.value <= tolerance;
  check.told = "the largest |Σ − 1| of " + std::to_string(rows) + " rows is " + short_number(check.value, 2);
  if (empty != 0) check.told += "; " + std::to_string(empty) + " rows see no key and are 0";
  return check;
}

// Scores that may be -inf on purpose.
bool may_forbid(std::string_view step) {
  return step == "scored" || step == "biased" || step == "relative" || step == "alibi" || step == "masked";
}

Check finite(const Blocks& blocks) {
  Check check{"every value is a number"};
  std::int64_t nan = 0, inf = 0;
  for (const Block& block : blocks.blocks) {
    for (const auto& [name, tensor] : block.steps) {
      for (const float x : values(tensor)) {
        nan += std::isnan(x);
        inf += std::isinf(x) && !(x < 0 && may_forbid(name));
      }
    }
  }
  check.value = static_cast<double>(nan);
  check.holds = nan + inf == 0;
  check.told = nan + inf == 0
                   ? "no NaN and no infinity in any step"
                   : std::to_string(nan) + " NaN and " + std::to_string(inf) + " infinite values in the steps";
  return check;
}

// Weight on keys that the mask forbids, of what flows on: dropped where there is dropout.
Check leak(const Blocks& blocks) {
  Check check{"masked keys have no weight"};
  for (const Block& block : blocks.blocks) {
    const Tensor* masked = block.find("masked");
    if (!masked) continue;
    const auto forbidden = values(*masked);
    for (const char* step : {"weights", "dropped"}) {
      const Tensor* weights = block.find(step);
      if (!weights) continue;
      for (std::size_t i = 0; i < forbidden.size(); ++i) {
        if (std::isinf(forbidden[i]) && forbidden[i] < 0) {
          check.value = std::max(check.value, std::abs(static_cast<double>(values(*weights)[i])));
        }
      }
    }
  }
  check.holds = check.value == 0;
  check.told = "the largest weight of a masked key is " + short_number(check.value, 2);
  return check;
}

// The same keys kept, in float64, of up to `kRows` queries of a head.
constexpr std::int64_t kRows = 128;

Tensor float64_weights(const Block& block, const Tensor& q, const Tensor& k, const Tensor& masked, double factor) {
  Tensor scores =
      q.defined() ? ref::scale(ref::scores(q.to(DType::f64), k.to(DType::f64)), factor) : masked.to(DType::f64);
  if (q.defined() && block.find("masked")) {
    auto* s = scores.data<double>();
    const Tensor m = masked.contiguous();
    for (std::int64_t i = 0; i < m.numel(); ++i) {
      if (m.data<float>()[i] == -INFINITY) s[i] = -INFINITY;
    }
  }
  return ref::softmax(scores);
}

// Is a score softmax's as it was scaled, or forbidden? Where a softcap, bias or the like stands between, float64 starts
// from what softmax took.
bool only_masks(const Block& block) {
  const Tensor *scaled = block.find("scaled"), *masked = block.softmax_input();
  if (!scaled || !masked) return true;
  const auto a = values(*scaled), b = values(*masked);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && !std::isinf(b[i])) return false;
  }
  return true;
}

Check float64_difference(const Blocks& blocks) {
  Check check{"float64 gives the same weights"};
  std::int64_t compared = 0;
  for (const Block& block : blocks.blocks) {
    const Tensor* masked = block.softmax_input();
    if (!masked) continue;
    const Tensor &weights = block.weights(), *q = block.find("rotated queries"), *k = block.find("rotated keys");
    if (!q) q = block.find("queries");
    if (!k) k = block.find("keys");
    if (!q && !block.find("scaled")) q = k = block.find("inputs");  // simplified: x is all of them
    const bool whole = q && k && only_masks(block);
    const std::int64_t rows = std::min(weights.size(1), kRows);
    for (std::int64_t head = 0; head < weights.size(0); ++head) {
      const auto part = [&](const Tensor& t) { return of_head(t, head, weights.size(0)); };
      const Tensor exact =
          float64_weights(block, whole ? part(*q).slice(0, 0, rows) : Tensor(), whole ? part(*k) : Tensor(),
                          part(*masked).slice(0, 0, rows), scale_of(block));
      const Tensor found = weights.select(0, head).slice(0, 0, rows);
      for (std::int64_t i = 0; i < exact.numel(); ++i) {
        const double d = std::abs(exact.data<double>()[i] - static_cast<double>(found.data<float>()[i]));
        if (!std::isnan(d)) check.value = std::max(check.value, d);
      }
      compared += rows;
    }
  }
  constexpr double tolerance = 1e-4;
  check.holds = check.value <= tolerance;
  check.told = "the largest difference in " + std::to_string(compared) + " rows is " + short_number(check.value, 2);
  if (compared == 0) check.name.clear();
  return check;
}

}  // namespace

double scale_of(const Block& block) {
  const Tensor *scores = block.find("scores"), *scaled = block.find("scaled");
  if (!scores || !scaled) return 1;
  double most = 0, factor = 1;
  for (std::size_t i = 0; i < values(*scores).size(); ++i) {
    const double s = values(*scores)[i], t = values(*scaled)[i];
    if (std::isfinite(s) && std::isfinite(t) && std::abs(s) > most) most = std::abs(s), factor = t / s;
  }
  return factor;
}

std::vector<Check> health(const Blocks& blocks, const ReportOptions& options) {
  std::vector<Check> checks{row_sums(blocks), finite(blocks)};
  const bool masked = std::any_of(blocks.blocks.begin(), blocks.blocks.end(),
                                  [](const Block& b) { return b.find("masked") != nullptr; });
  if (masked) checks.push_back(leak(blocks));
  if (options.module != "average") checks.push_back(float64_difference(blocks));
  std::erase_if(checks, [](const Check& check) { return check.name.empty(); });
  return checks;
}

}  // namespace attn::report_page
