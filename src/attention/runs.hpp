// The kernels on a call, forward and backward; and what is computed again, beside infinities, NaN and numbers that
// float32 does not hold: by the kernels on copies without these, and the rows that these reach in double.
#pragma once

#include "attention/exact_row.hpp"
#include "core/rows.hpp"

namespace attn {

// Whether all rows that may see something are finite. `lse_rest`, where defined, gets what lse lacks by its rounding.
bool run_forward(const Call& call, AttentionResult& result, const Tensor& lse_rest = {});

// Computes the rows of a result that are not finite, and may be, again: in memory linear in tokens.
void compute_again(const Call& call, const Sizes& p, const AttentionOptions& options, AttentionResult& result);

// The kernels' gradients of a call, without the sinks', and what they say about them.
struct Gradients {
  AttentionGradient grad;
  bool finite = true;
};

// In `dtype`, the call's or float32.
Gradients run_backward(const Call& call, const Sizes& p, const AttentionOptions& options, const Incoming& in,
                       DType dtype);

// The same beside such numbers, in memory linear in tokens.
AttentionGradient gradient_again(const Call& call, const Sizes& p, const AttentionOptions& options, const Incoming& in);

// From here on float32 knows a row's scores to no better than 1, and exp(score - lse) may be anything.
constexpr float kFarScore = 0x1p24F;

// f(row, its number among log-sum-exps) for every row of a call, on all threads.
template <class F>
void for_each_row(const Call& call, const Sizes& p, const F& f) {
  for (const Part& part : call.parts) {
    const std::int64_t tq = part.piece.tq;
    for_runs(
        part.piece.batches * p.hq * tq, static_cast<double>(p.dv),
        [&](std::int64_t first, std::int64_t count) {
          for (std::int64_t n = first; n < first + count; ++n) {
            const RowPlace row{part, n / tq / p.hq, n / tq % p.hq, n % tq};
            f(row, (row.item() * p.hq + row.h) * p.tq + row.query());
          }
        },
        64);
  }
}

}  // namespace attn
