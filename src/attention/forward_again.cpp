// Rows of the forward pass whose numbers left float32's range, or met infinities and NaN.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/runs.hpp"
#include "attention/special.hpp"
#include "reference/loops.hpp"

namespace attn {
namespace {

using Tokens = std::vector<std::vector<std::int64_t>>;

// The special rows of a call's inputs, by head.
struct Specials {
  Tokens queries, keys, values;

  explicit Specials(const Call& call)
      : queries(special_tokens(call.q)), keys(special_tokens(call.k)), values(special_tokens(call.v)) {}

  std::span<const std::int64_t> of(const Tokens& all, const RowPlace& row) const {
    return all[static_cast<std::size_t>(row.item() * row.part.problem.hkv + row.key_head())];
  }

  // Whether a query's scores are those of finite numbers.
  bool has_finite_scores(const RowPlace& row) const {
    const auto& own = queries[static_cast<std::size_t>(row.item() * row.part.problem.hq + row.h)];
    const auto seen = of(keys, row);
    return !std::binary_search(own.begin(), own.end(), row.query()) &&
           std::none_of(seen.begin(), seen.end(), [&](std::int64_t j) { return row.sees(j - row.part.piece.key); });
  }
};

bool is_whole(const AttentionResult& result, const RowPlace& row, float lse) {
  return std::isfinite(lse) &&
         is_finite(row_at(result.output, row.item(), row.h, row.query()), result.output.dtype(), result.output.size(3));
}

// Writes an output, to which special values that the query sees are added: a weight of 0 may stand for a small one.
template <class T>
void put(const T* output, double lse, const Call& call, const Specials& specials, const RowPlace& row, std::int64_t at,
         AttentionResult& result) {
  std::vector<float> sum(static_cast<std::size_t>(call.v.size(3)));
  std::transform(output, output + sum.size(), sum.begin(), [](T x) { return reference::narrow<float>(x); });
  const Tensor values = call.v.select(0, row.item()).select(0, row.key_head());
  for (const std::int64_t token : specials.of(specials.values, row)) {
    if (std::isnan(lse)) break;  // the output is NaN already
    if (!row.sees(token - row.part.piece.key)) continue;
    const Tensor value = values.select(0, token).to(DType::f32);
    for (std::int64_t c = 0; c < value.size(0); ++c) {
      const float x = value.data<float>()[c * value.stride(0)];
      if (!std::isfinite(x)) sum[static_cast<std::size_t>(c)] += x;
    }
  }
  store_saturated(sum, row_at(result.output, row.item(), row.h, row.query()), result.output.dtype());
  result.lse.data<float>()[at] = reference::narrow<float>(lse);
}

}  // namespace

void compute_again(const Call& call, const Sizes& p, const AttentionOptions& options, AttentionResult& result) {
  const Specials specials(call);
  std::vector<char> by_kernels(static_cast<std::size_t>(result.lse.numel())), exactly(by_kernels);
  for_each_row(call, p, [&](const RowPlace& row, std::int64_t at) {
    const float lse = result.lse.data<float>()[at];
    if (is_whole(result, row, lse) || (lse == -std::numeric_limits<float>::infinity() && !row.sees_any())) return;
    const bool clean = !specials.of(specials.keys, row).empty() || !specials.of(specials.values, row).empty();
    (clean && specials.has_finite_scores(row) ? by_kernels : exactly)[static_cast<std::size_t>(at)] = 1;
  });
  if (std::find(by_kernels.begin(), by_kernels.end(), 1) != by_kernels.end()) {
    AttentionOptions own = options;
    own.precision = Precision::highest;
    const Call clean(without_specials(call.q), without_specials(call.k), without_specials(call.v), p, own);
    AttentionResult found{Tensor::empty(p.output_shape()), Tensor::empty(result.lse.shape())};
    run_forward(clean, found);
    for_each_row(call, p, [&](const RowPlace& row, std::int64_t at) {
      if (!by_kernels[static_cast<std::size_t>(at)]) return;
      const float lse = found.lse.data<float>()[at];
      if (is_whole(found, row, lse)) {
        put(found.output.data<float>() + at * p.dv, static_cast<double>(lse), call, specials, row, at, result);
      } else {
        exactly[static_cast<std::size_t>(at)] = 1;
      }
    });
  }
  for_each_row(call, p, [&](const RowPlace& row, std::int64_t at) {
    if (!exactly[static_cast<std::size_t>(at)]) return;
    const ExactRow exact(call, p, options, row);
    put(exact.output().data(), exact.lse(), call, specials, row, at, result);
  });
}

}  // namespace attn
