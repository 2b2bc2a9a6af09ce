// Gradients of calls with infinities, NaN, and numbers that float32 does not hold.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attention/runs.hpp"
#include "attention/special.hpp"

namespace attn {
namespace {

// The largest magnitude of each head's numbers, of a contiguous float32 tensor (b, h, t, width).
std::vector<double> largest_of_heads(const Tensor& t) {
  std::vector<double> all;
  const std::int64_t numbers = t.size(2) * t.size(3);
  for (std::int64_t head = 0; head < t.size(0) * t.size(1); ++head) {
    const float* first = t.data<float>() + head * numbers;
    const auto larger = [](float most, float x) { return std::max(most, std::fabs(x)); };
    all.push_back(static_cast<double>(std::accumulate(first, first + numbers, 0.F, larger)));
  }
  return all;
}

// Σ |x · y|, infinite where a number is not finite.
double size_of_product(const float* x, const float* y, std::int64_t n) {
  double sum = 0;
  for (std::int64_t c = 0; c < n; ++c) sum += std::fabs(static_cast<double>(x[c]) * static_cast<double>(y[c]));
  return std::isnan(sum) ? std::numeric_limits<double>::infinity() : sum;
}

double size_of(const float* x, std::int64_t n) {
  double sum = 0;
  for (std::int64_t c = 0; c < n; ++c) sum += std::fabs(static_cast<double>(x[c]));
  return std::isnan(sum) ? std::numeric_limits<double>::infinity() : sum;
}

// Whether finite numbers are below `least` or above `most`.
bool has_beyond(const Tensor& t, double least, double most) {
  if (!t.defined()) return false;
  const Tensor numbers = t.to(DType::f64).contiguous();
  const auto beyond = [least, most](double x) { return std::isfinite(x) && !(least <= x && x <= most); };
  return std::any_of(numbers.data<double>(), numbers.data<double>() + numbers.numel(), beyond);
}

// A finite number from here on may become infinite where it is split into parts of bfloat16.
constexpr float kPartsEnd = 0x1.ffp127F;

// A call with finite numbers, and what comes into it: rows set aside have a query and a gradient of zero, and no
// weights.
struct CleanCall {
  Tensor q, k, v;
  Incoming in;
  std::vector<char> aside;  // by the rows' numbers among log-sum-exps
  bool all_aside;

  CleanCall(const Call& call, const Sizes& p, const AttentionOptions& options, const Incoming& incoming)
      : q(call.q.to(DType::f32).contiguous().clone()),
        k(without_specials(call.k, kPartsEnd)),
        v(without_specials(call.v, kPartsEnd)),
        in{incoming.d_output.to(DType::f32).contiguous().clone(), without_specials(incoming.output),
           incoming.lse.clone()},
        aside(static_cast<std::size_t>(in.lse.numel())) {
    const std::vector<double> most_key = largest_of_heads(k), most_value = largest_of_heads(v);
    const std::vector<std::vector<std::int64_t>> special_keys = special_tokens(call.k, kPartsEnd),
                                                 large_values = special_tokens(call.v, kPartsEnd);
    const Tensor output = incoming.output.to(DType::f32).contiguous();
    // A score of infinity has no weight of zero, and its sum with the -inf of hidden keys would be NaN. Numbers near
    // -inf, with which many masks hide, are sums that stay below.
    constexpr double most = 0x1p100, infinity = std::numeric_limits<double>::infinity();
    all_aside = has_beyond(options.alibi_slopes, -kFarScore, kFarScore) ||
                has_beyond(options.relative_bias.table, -infinity, most) ||
                has_beyond(options.mask.bias, options.score_function ? -most : -infinity, most);
    for_each_row(call, p, [&](const RowPlace& row, std::int64_t at) {
      float& lse = in.lse.data<float>()[at];
      float *query = q.data<float>() + at * p.d, *d_output = in.d_output.data<float>() + at * p.dv;
      const auto head = static_cast<std::size_t>(row.item() * p.hkv + row.key_head());
      const auto sees_any = [&](const std::vector<std::int64_t>& tokens) {
        return std::any_of(tokens.begin(), tokens.end(), [&](auto j) { return row.sees(j - row.part.piece.key); });
      };
      const double score = size_of(query, p.d) * std::fabs(p.scale) * std::max(most_key[head], 1.0);
      const double d_weight = size_of(d_output, p.dv) * std::max(most_value[head], 1.0),
                   mean = size_of_product(d_output, output.data<float>() + at * p.dv, p.dv);
      const bool empty = lse == -std::numeric_limits<float>::infinity();  // which leaves NaN in no gradient
      const bool near = std::fabs(lse) <= kFarScore && score <= kFarScore && d_weight < 1e38 && mean < 1e38;
      if (near && !all_aside && !sees_any(special_keys[head]) && !sees_any(large_values[head])) return;
      aside[static_cast<std::size_t>(at)] = !empty;
      lse = std::numeric_limits<float>::infinity();  // a weight of zero for every finite score
      std::fill_n(query, p.d, 0.F), std::fill_n(d_output, p.dv, 0.F);
    });
  }
};

// Adds the gradients of the rows of a key head that were set aside.
void add_exactly(const Call& call, const Sizes& p, const AttentionOptions& options, const Incoming& in,
                 const std::vector<char>& aside, const Part& part, std::int64_t key_head,
                 const AttentionGradient& grad) {
  const Piece& piece = part.piece;
  const std::int64_t group = p.hq / p.hkv, b = key_head / p.hkv, head = key_head % p.hkv;
  KeyGradients keys(piece.tk, p.d, p.dv);
  for (std::int64_t r = 0; r < group * piece.tq; ++r) {
    const RowPlace row{part, b, head * group + r / piece.tq, r % piece.tq};
    if (!aside[static_cast<std::size_t>((row.item() * p.hq + row.h) * p.tq + row.query())]) continue;
    ExactRow(call, p, options, row).add_gradient(in, grad, keys);
  }
  const auto add = [&](const Tensor& to, const std::vector<double>& sums) {
    const std::int64_t width = to.size(3);
    for (std::int64_t j = 0; j < piece.tk; ++j) {
      auto* row = static_cast<float*>(row_at(to, piece.batch + b, head, piece.key + j));
      for (std::int64_t c = 0; c < width; ++c) {
        const double sum = static_cast<double>(row[c]) + sums[static_cast<std::size_t>(j * width + c)];
        row[c] = keys.nan[static_cast<std::size_t>(j)] ? std::nanf("") : static_cast<float>(sum);
      }
    }
  };
  add(grad.k, keys.k), add(grad.v, keys.v);
}

}  // namespace

AttentionGradient gradient_again(const Call& call, const Sizes& p, const AttentionOptions& options,
                                 const Incoming& in) {
  const CleanCall clean(call, p, options, in);
  const DType of = call.q.dtype(), dtype = of == DType::bf16 || of == DType::f16 ? of : DType::f32;
  AttentionOptions own = options;
  if (clean.all_aside && own.mask.bias.defined()) own.mask.bias = Tensor::zeros(own.mask.bias.shape());
  if (clean.all_aside && own.relative_bias.table.defined())
    own.relative_bias.table = Tensor::zeros(own.relative_bias.table.shape());
  if (clean.all_aside && own.alibi_slopes.defined()) own.alibi_slopes = Tensor::zeros({p.hq});
  const Call whole(clean.q.to(dtype), clean.k.to(dtype), clean.v.to(dtype), p, own);
  const AttentionGradient grad =
      run_backward(whole, p, options, {clean.in.d_output.to(dtype), clean.in.output.to(dtype), clean.in.lse},
                   DType::f32)
          .grad;
  for (const Part& part : call.parts) {
    const auto heads = [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t head = first; head < first + count; ++head)
        add_exactly(call, p, options, in, clean.aside, part, head, grad);
    };
    const std::int64_t count = part.piece.batches * p.hkv;
    if (grad.bias.defined() || grad.relative_bias.defined()) {
      heads(0, count);  // which may share its cells
    } else {
      for_runs(count, static_cast<double>(p.tq * p.tk), heads, 1);
    }
  }
  const DType to = output_dtype(call.q, options);
  return {grad.q.to(to), grad.k.to(to), grad.v.to(to), grad.bias, {}, grad.relative_bias};
}

}  // namespace attn
