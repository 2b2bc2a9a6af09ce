// The kernels on a call, forward and backward; and what is computed again, beside infinities, NaN and numbers near the
// end of float32's range.
#pragma once

#include <functional>
#include <vector>

#include "attention/call.hpp"
#include "attention/special.hpp"
#include "core/rows.hpp"

namespace attn {

// Whether all rows that may see something are finite. `lse_rest`, where defined, gets what lse lacks by its rounding.
bool run_forward(const Call& call, AttentionResult& result, const Tensor& lse_rest = {});

// The key heads that have rows which are not finite: (b, hkv).
Heads heads_not_finite(const Sizes& p, const AttentionResult& result);

// Computes the rows of a result that are not finite, and may be, again: in double, one at a time, in memory linear in
// tokens. Of keys and values it reads those heads.
void compute_exactly(const Call& call, const Sizes& p, const AttentionOptions& options, const Heads& heads,
                     AttentionResult& result);

// The kernels' gradients of a call, without the sinks', and what they say about them.
struct Gradients {
  AttentionGradient grad;
  bool finite = true, given_up = false;
};

// What a backward pass takes beside its call.
struct Incoming {
  Tensor d_output, output, lse;
};

// In `dtype`, the call's or float32.
Gradients run_backward(const Call& call, const Sizes& p, const AttentionOptions& options, const Incoming& in,
                       DType dtype, bool may_give_up);

// The same beside infinities and NaN, in memory linear in tokens: they reach what they belong to, and nothing that is
// masked.
AttentionGradient gradient_beside_specials(const Call& call, const Sizes& p, const AttentionOptions& options,
                                           Incoming in);

// f(part, its item, head, query; the row's number among log-sum-exps) for every row of a call, on all threads.
template <class F>
void for_each_row(const Call& call, const Sizes& p, const F& f) {
  for (const Part& part : call.parts) {
    const std::int64_t tq = part.piece.tq;
    for_runs(
        part.piece.batches * p.hq * tq, static_cast<double>(p.dv),
        [&](std::int64_t first, std::int64_t count) {
          for (std::int64_t n = first; n < first + count; ++n) {
            const std::int64_t b = n / tq / p.hq, h = n / tq % p.hq, i = n % tq;
            f(part, b, h, i, ((part.piece.batch + b) * p.hq + h) * p.tq + part.piece.query + i);
          }
        },
        64);
  }
}

inline const void* row_at(const Tensor& t, std::int64_t b, std::int64_t h, std::int64_t i) {
  const std::int64_t at = b * t.stride(0) + h * t.stride(1) + i * t.stride(2);
  return static_cast<const std::byte*>(t.raw()) + at * static_cast<std::int64_t>(size_of(t.dtype()));
}

}  // namespace attn
