// Rows of the forward pass whose numbers left float32's range, once more in double.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "attention/row.hpp"
#include "attention/runs.hpp"
#include "reference/elementwise.hpp"

namespace attn {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// A query of a part, and its number among the log-sum-exps.
struct Row {
  const Part& part;
  std::int64_t b, h, i, at;

  std::int64_t item() const { return part.piece.batch + b; }
  std::int64_t query() const { return part.piece.query + i; }
  std::int64_t key_head() const { return h / (part.problem.hq / part.problem.hkv); }
  bool sees(std::int64_t token) const { return attn::sees(part.problem, b, h, i, token - part.piece.key); }
};

// Infinities and NaN among the inputs of a call, and what they make of its rows.
class Inputs {
 public:
  Inputs(const Call& call, const Sizes& p, const AttentionOptions& options, const Heads& heads)
      : queries(call.q), keys(call.k, heads), values(call.v, heads), call_(call), scale_(p.scale) {
    plain_scores_ = options.softcap == 0 && !options.score_function;
  }

  // A query that is NaN somewhere, or sees a key of which one score is NaN or +inf, has no other weights than NaN.
  bool makes_nan(const Row& row) const {
    for (const SpecialRow& special : queries.of(row.item(), row.h)) {
      if (special.token == row.query() && is_nan(special)) return sees_any(row.part.problem, row.b, row.h, row.i);
    }
    const auto special_keys = keys.of(row.item(), row.key_head());
    return std::any_of(special_keys.begin(), special_keys.end(), [&](const SpecialRow& key) {
      if (!row.sees(key.token)) return false;
      if (is_nan(key)) return true;
      return plain_scores_ && !(score(row, key.token) < std::numeric_limits<double>::infinity());
    });
  }

  // Whether a query's scores are those of finite numbers.
  bool has_finite_scores(const Row& row) const {
    const auto own = queries.of(row.item(), row.h);
    const auto special_keys = keys.of(row.item(), row.key_head());
    return std::none_of(own.begin(), own.end(), [&](const SpecialRow& q) { return q.token == row.query(); }) &&
           std::none_of(special_keys.begin(), special_keys.end(),
                        [&](const SpecialRow& key) { return row.sees(key.token); });
  }

  // The columns of values that are +inf, and those that are -inf, in rows that a query sees.
  std::pair<Columns, Columns> seen_by(const Row& row, std::int64_t width) const {
    Columns above(static_cast<std::size_t>((width + 63) / 64)), below(above);
    for (const SpecialRow& value : values.of(row.item(), row.key_head())) {
      if (!row.sees(value.token)) continue;
      for (std::size_t n = 0; n < above.size(); ++n) above[n] |= value.above[n], below[n] |= value.below[n];
    }
    return {above, below};
  }

  const Specials queries, keys, values;

 private:
  static bool is_nan(const SpecialRow& row) {
    bool both = false;
    for (std::size_t n = 0; n < row.above.size(); ++n) both = both || (row.above[n] & row.below[n]) != 0;
    return both;
  }

  double score(const Row& row, std::int64_t token) const {
    const Tensor q = call_.q.select(0, row.item()).select(0, row.h).select(0, row.query());
    const Tensor k = call_.k.select(0, row.item()).select(0, row.key_head()).select(0, token);
    double sum = 0;
    for (std::int64_t c = 0; c < q.size(0); ++c) sum += q.at({c}) * k.at({c});
    return sum * scale_;
  }

  const Call& call_;
  double scale_;
  bool plain_scores_;
};

void put(const Tensor& output, const Inputs& inputs, const Row& row, AttentionResult& result) {
  const std::span numbers(output.data<float>(), static_cast<std::size_t>(output.numel()));
  const auto [above, below] = inputs.seen_by(row, output.numel());
  put_specials(numbers, above, below);
  store_saturated(numbers, const_cast<void*>(row_at(result.output, row.item(), row.h, row.query())),
                  result.output.dtype());
}

// Whether the kernels' NaN and infinities are what a row asks for: its weights are NaN, or its values are infinite.
bool is_right(const Row& row, const Inputs& inputs, AttentionResult& result) {
  const float lse = result.lse.data<float>()[row.at];
  if (lse == -kInf && !sees_any(row.part.problem, row.b, row.h, row.i)) return true;
  if (!std::isfinite(lse)) return inputs.makes_nan(row);
  if (!inputs.values.any()) return false;
  const Tensor output = result.output.select(0, row.item()).select(0, row.h).select(0, row.query());
  const Tensor copy = output.to(DType::f32).clone();
  const auto [above, below] = inputs.seen_by(row, copy.numel());
  for (std::int64_t c = 0; c < copy.numel(); ++c) {
    if ((above[static_cast<std::size_t>(c / 64)] | below[static_cast<std::size_t>(c / 64)]) >> (c % 64) & 1)
      copy.data<float>()[c] = 0;  // what it becomes is known
  }
  if (!is_finite(copy.raw(), DType::f32, copy.numel())) return false;
  put(copy, inputs, row, result);
  return true;
}

// Rows that a mask hides from infinities and NaN, by the same kernels on copies without these.
void take_from_clean_copies(const Call& call, const Sizes& p, const AttentionOptions& options, const Inputs& inputs,
                            std::vector<char>& wanted, AttentionResult& result) {
  if (!inputs.keys.any() && !inputs.values.any()) return;
  AttentionOptions own = options;
  own.precision = Precision::highest;
  const Call clean(without_specials(call.q, 0), without_specials(call.k, 0), without_specials(call.v, 0), p, own);
  AttentionResult found{Tensor::empty(p.output_shape()), Tensor::empty(result.lse.shape()), {}};
  run_forward(clean, found);
  for_each_row(call, p, [&](const Part& part, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t at) {
    const Row row{part, b, h, i, at};
    const Tensor output = found.output.select(0, row.item()).select(0, h).select(0, row.query());
    const float lse = found.lse.data<float>()[at];
    if (!wanted[static_cast<std::size_t>(at)] || !inputs.has_finite_scores(row) || !std::isfinite(lse) ||
        !is_finite(output.raw(), DType::f32, p.dv))
      return;
    put(output, inputs, row, result);
    result.lse.data<float>()[at] = lse;
    wanted[static_cast<std::size_t>(at)] = 0;
  });
}

bool any(const std::vector<char>& rows) { return std::find(rows.begin(), rows.end(), 1) != rows.end(); }

}  // namespace

Heads heads_not_finite(const Sizes& p, const AttentionResult& result) {
  Heads heads(static_cast<std::size_t>(p.batch * p.hkv));
  const std::int64_t group = p.hq / p.hkv, numbers = group * p.tq * p.dv;
  for_runs(
      p.batch * p.hkv, static_cast<double>(numbers),
      [&](std::int64_t at, std::int64_t) {
        for (std::int64_t r = 0; r < group * p.tq && !heads[static_cast<std::size_t>(at)]; ++r) {
          const std::int64_t b = at / p.hkv, h = at % p.hkv * group + r / p.tq, i = r % p.tq;
          heads[static_cast<std::size_t>(at)] = !std::isfinite(result.lse.data<float>()[(b * p.hq + h) * p.tq + i]) ||
                                                !is_finite(row_at(result.output, b, h, i), result.output.dtype(), p.dv);
        }
      },
      1);
  return heads;
}

void compute_exactly(const Call& call, const Sizes& p, const AttentionOptions& options, const Heads& heads,
                     AttentionResult& result) {
  const Inputs inputs(call, p, options, heads);
  AttentionOptions own = options;
  own.return_weights = false, own.output_dtype.reset();
  std::vector<char> wanted(static_cast<std::size_t>(result.lse.numel()));
  for_each_row(call, p, [&](const Part& part, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t at) {
    const Row row{part, b, h, i, at};
    const bool whole = std::isfinite(result.lse.data<float>()[at]) &&
                       is_finite(row_at(result.output, row.item(), h, row.query()), result.output.dtype(), p.dv);
    if (whole || is_right(row, inputs, result)) return;
    wanted[static_cast<std::size_t>(at)] = 1;
  });
  if (any(wanted)) take_from_clean_copies(call, p, own, inputs, wanted, result);
  if (!any(wanted)) return;
  // Values without infinities and NaN, which come back where they are seen: a weight of 0 may stand for a small one.
  const Tensor q = call.q.to(DType::f64), k = call.k.to(DType::f64),
               v = (inputs.values.any() ? without_specials(call.v, 0, heads) : call.v).to(DType::f64);
  for_each_row(call, p, [&](const Part& part, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t at) {
    if (!wanted[static_cast<std::size_t>(at)]) return;
    const Row row{part, b, h, i, at};
    const AttentionResult exact = composed_row(q, k, v, p, own, part.piece, row.item(), h, row.query());
    put(reference::saturate_to(exact.output, DType::f32).contiguous(), inputs, row, result);
    result.lse.data<float>()[at] = reference::saturate_to(exact.lse, DType::f32).data<float>()[0];
  });
}

}  // namespace attn
