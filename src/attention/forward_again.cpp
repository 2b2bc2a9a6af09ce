// Rows of the forward pass whose numbers were not finite.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "attention/row.hpp"
#include "attention/runs.hpp"
#include "kernels/explain.hpp"
#include "kernels/targets.hpp"

namespace attn {
namespace {

// A call whose first results are not all finite: what its numbers may have done to them.
class Suspicion {
 public:
  Suspicion(const Call& call, const Sizes& p, const AttentionOptions& options, const Heads& heads)
      : queries_(call.q), keys_(call.k, heads), values_(call.v, heads), exact_(true) {
    constexpr double end = 0x1p125;
    const double factor = std::fabs(p.scale) / (options.softcap > 0 ? options.softcap : 1);
    const double q = queries_.most(), k = keys_.most(), distance = static_cast<double>(p.tq + p.tk);
    const double products = std::max(1.0, k) * std::max(1.0, q) * static_cast<double>(p.d);
    const double sizes[] = {2 * factor,
                            products * std::max(1.0, 2 * factor),
                            values_.most() * 512 * distance,
                            largest_finite(options.mask.bias),
                            largest_finite(options.alibi_slopes) * distance,
                            largest_finite(options.relative_bias.table),
                            largest_finite(options.sinks)};
    const double largest_output = std::min(end, largest(output_dtype(call.q, options)));
    // Past 2^24 scores are known to no better than 1, and weights may overflow where scores do not.
    overflow_ = options.score_function || products * factor > 0x1p24 ||
                values_.most() / (1 - options.dropout) > largest_output ||
                *std::max_element(std::begin(sizes), std::end(sizes)) > end;
    if (!queries_.infinities() && !keys_.infinities() && !values_.infinities()) return;
    const kernels::PlanListener unheard;
    for (const Part& part : call.parts) {
      const kernels::ForwardPlan plan = kernels::plan(part.problem, kernels::active());
      const bool whole = plan.parts == 0 || part.problem.element == kernels::Element::bf16;
      exact_ = exact_ && whole && plan.family != kernels::Family::int8_decode;
    }
  }

  const Specials& keys() const { return keys_; }
  const Specials& values() const { return values_; }

  // Whether the kernels' NaN and infinities are what the row asks for: none came of finite numbers, of infinities that
  // became bf16 or bytes, nor of values that are hidden from it.
  bool clears(const Part& part, std::int64_t b, std::int64_t h, std::int64_t i, float lse) const {
    if (overflow_ || !exact_) return lse == -std::numeric_limits<float>::infinity() && !sees_any(part.problem, b, h, i);
    if (!std::isfinite(lse)) return true;  // of scores, and those that are hidden count for nothing
    const auto all = values_.of(part.piece.batch + b, h / (part.problem.hq / part.problem.hkv));
    return std::all_of(all.begin(), all.end(), [&](const SpecialRow& row) {
      return attn::sees(part.problem, b, h, i, row.token - part.piece.key);
    });
  }

 private:
  Specials queries_, keys_, values_;
  bool overflow_, exact_;
};

Wanted rows_to_compute_again(const Call& call, const Sizes& p, const Suspicion& suspicion,
                             const AttentionResult& result) {
  Wanted wanted(static_cast<std::size_t>(result.lse.numel()));
  for_each_row(call, p, [&](const Part& part, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t at) {
    const float lse = result.lse.data<float>()[at];
    const std::int64_t place = b * part.problem.interval_batch + i;
    if (lse == -std::numeric_limits<float>::infinity() && part.problem.first[place] >= part.problem.last[place] &&
        !part.problem.sinks) {
      return;
    }
    const void* row = row_at(result.output, part.piece.batch + b, h, part.piece.query + i);
    if (std::isfinite(lse) && is_finite(row, result.output.dtype(), p.dv)) return;
    wanted[static_cast<std::size_t>(at)] = !suspicion.clears(part, b, h, i, lse);
  });
  return wanted;
}

// Takes q by rows divided by powers of two, and values without infinities and NaN.
struct LargeCall : Call {
  Divided by;

  LargeCall(const Divided& queries, const Tensor& keys, const Tensor& values, double largest_value, const Sizes& p,
            const AttentionOptions& options)
      : Call(queries.q, keys, values, p, options), by(queries) {
    const bool large = largest_value * static_cast<double>(p.tk + 1) > 0x1p125;
    for (Part& part : parts) {
      part.problem.scale = options.softcap > 0 ? static_cast<float>(options.softcap) : 1;
      part.problem.roots = by.roots.data<float>() + part.piece.batch * p.hq * p.tq + part.piece.query;
      part.problem.roots_head = p.tq;
      if (large) part.problem.weight_shift = std::ceil(std::log2(static_cast<float>(p.tk + 1))) + 1;
    }
  }
};

// The rows whose numbers one power of two cannot bring into float32's range all at once.
void run_in_double(const Tensor& queries, const LargeCall& large, const Sizes& p, const AttentionOptions& options,
                   const Wanted& wanted, AttentionResult& found) {
  const std::vector<char>& lost = large.by.lost;
  if (std::find(lost.begin(), lost.end(), 1) == lost.end()) return;
  const Tensor q = queries.to(DType::f64);
  AttentionOptions own = options;
  own.return_weights = false, own.output_dtype.reset();
  for_each_row(large, p, [&](const Part& part, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t at) {
    if (!wanted[static_cast<std::size_t>(at)] || !lost[static_cast<std::size_t>(at)]) return;
    const std::int64_t item = part.piece.batch + b, query = part.piece.query + i;
    const AttentionResult row = composed_row(q, large.k, large.v, p, own, part.piece, item, h, query);
    const Tensor to = found.output.select(0, item).select(0, h).select(0, query);
    to.copy_from(reference::saturate_to(row.output, DType::f32).view({p.dv}));
    found.lse.data<float>()[at] = reference::saturate_to(row.lse, DType::f32).data<float>()[0];
  });
}

}  // namespace

Heads heads_to_mend(const Sizes& p, const AttentionResult& result) {
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

// The rows whose NaN or infinities may not be theirs once more, in memory linear in tokens: by numbers that float32
// holds, and values without infinities and NaN; these come back where they are seen.
void mend(const Call& call, const Sizes& p, const AttentionOptions& options, const Heads& heads,
          AttentionResult& result) {
  const Suspicion suspicion(call, p, options, heads);
  const Specials& values = suspicion.values();
  const Wanted wanted = rows_to_compute_again(call, p, suspicion, result);
  if (std::find(wanted.begin(), wanted.end(), 1) == wanted.end()) return;
  AttentionOptions again = options;
  again.precision = Precision::highest;
  const LargeCall large(divided(call.q, p.scale / (options.softcap > 0 ? options.softcap : 1), suspicion.keys().most()),
                        call.k.to(DType::f32),
                        values.any() ? without_specials(call.v, 0, heads) : call.v.to(DType::f32), values.most(), p,
                        again);
  AttentionResult found{Tensor::empty(p.output_shape()), Tensor::empty(result.lse.shape()), {}};
  run_forward(large, found, wanted);
  run_in_double(call.q, large, p, again, wanted, found);
  for_each_row(call, p, [&](const Part& part, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t at) {
    if (!wanted[static_cast<std::size_t>(at)]) return;
    const std::span row(found.output.data<float>() + at * p.dv, static_cast<std::size_t>(p.dv));
    Columns above(static_cast<std::size_t>((p.dv + 63) / 64)), below(above);
    for (const SpecialRow& special : values.of(part.piece.batch + b, h / (p.hq / p.hkv))) {
      if (!sees(part.problem, b, h, i, special.token - part.piece.key)) continue;
      for (std::size_t n = 0; n < above.size(); ++n) above[n] |= special.above[n], below[n] |= special.below[n];
    }
    put_specials(row, above, below);
    const void* to = row_at(result.output, part.piece.batch + b, h, part.piece.query + i);
    store_saturated(row, const_cast<void*>(to), result.output.dtype());
    result.lse.data<float>()[at] = found.lse.data<float>()[at];
  });
}

}  // namespace attn
