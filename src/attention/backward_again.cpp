// Gradients of calls with infinities or NaN.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <span>
#include <tuple>

#include "attention/exact_gradients.hpp"
#include "attention/special.hpp"

namespace attn {
namespace {

// A query whose gradient the kernels cannot compute.
struct AsideRow : RowPlace {
  enum { finite, gradient, weights } kind;  // its numbers are too large; what comes in, or its weights, are not finite
};

// A bound of the scores of queries and keys (b, h, t, d), in float32 and contiguous, without infinities and NaN.
class ScoreBound {
 public:
  ScoreBound(const Tensor& q, const Tensor& k, double factor) : q_(q), key_heads_(k.size(1)), factor_(factor) {
    const std::int64_t numbers = k.size(2) * k.size(3);
    const float* first = k.data<float>();
    for (std::int64_t at = 0; at < k.size(0) * k.size(1); ++at, first += numbers) {
      const auto larger = [](float most, float x) { return std::max(most, std::fabs(x)); };
      most_.push_back(static_cast<double>(std::accumulate(first, first + numbers, 0.F, larger)));
    }
  }

  // Whether no sum of products of a query, as the kernels take it, can leave float32's range.
  bool holds(std::int64_t b, std::int64_t h, std::int64_t i) const {
    const float* q = row(b, h, i);
    double sum = 0;
    for (std::int64_t c = 0; c < q_.size(3); ++c) sum += std::fabs(static_cast<double>(q[c]) * factor_);
    const double most = most_[static_cast<std::size_t>(b * key_heads_ + h / (q_.size(1) / key_heads_))];
    return sum * std::max(most, 1.0) < 0x1p127;
  }

  // Makes a query's numbers 0, so that its scores are finite.
  void clear(std::int64_t b, std::int64_t h, std::int64_t i) const { std::fill_n(row(b, h, i), q_.size(3), 0.F); }

 private:
  float* row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return q_.data<float>() + ((b * q_.size(1) + h) * q_.size(2) + i) * q_.size(3);
  }

  Tensor q_;
  std::int64_t key_heads_;
  double factor_;
  std::vector<double> most_;  // the largest magnitude of each key head's numbers
};

// The rows of a call that are set aside, in order. `in` becomes finite: these rows have queries and weights of zero
// then, or, where it is the incoming gradient alone that is not finite, take part with what is.
std::vector<AsideRow> set_aside(const Call& call, const Sizes& p, const ScoreBound& bound, Incoming& in) {
  std::vector<AsideRow> aside;
  std::mutex mutex;
  const Tensor lse = in.lse.clone(), d_output = without_specials(in.d_output, 0),
               output = without_specials(in.output, 0);
  for_each_row(call, p, [&](const Part& part, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t at) {
    float& sum = lse.data<float>()[at];
    if (sum == -std::numeric_limits<float>::infinity()) return;
    float* d_row = d_output.data<float>() + at * p.dv;
    // Of Σ d_output · output, whose terms may leave float32's range where the sum does not.
    const double size = std::transform_reduce(
        d_row, d_row + p.dv, output.data<float>() + at * p.dv, 0.0, std::plus<>(),
        [](float d, float out) { return std::fabs(static_cast<double>(d) * static_cast<double>(out)); });
    const auto is_whole = [&](const Tensor& t) {
      return is_finite(row_at(t, part.piece.batch + b, h, part.piece.query + i), t.dtype(), p.dv);
    };
    const bool beyond =
        !(std::fabs(sum) < 2e38F) || size > 1e38 || !bound.holds(part.piece.batch + b, h, part.piece.query + i);
    const bool whole = is_whole(in.d_output) && is_whole(in.output);
    if (!beyond && whole) return;
    if (beyond) std::fill(d_row, d_row + p.dv, 0.F);
    const auto kind = !beyond ? AsideRow::gradient : whole && std::isfinite(sum) ? AsideRow::finite : AsideRow::weights;
    if (beyond) sum = 1e38F, bound.clear(part.piece.batch + b, h, part.piece.query + i);
    const std::lock_guard lock(mutex);
    aside.push_back({{&part, b, h, i}, kind});
  });
  const auto place = [](const AsideRow& row) { return std::tuple(row.part, row.b, row.h, row.i); };
  std::sort(aside.begin(), aside.end(), [&](const AsideRow& a, const AsideRow& b) { return place(a) < place(b); });
  const DType dtype = in.d_output.dtype() == DType::bf16 ? DType::bf16 : DType::f32;
  in = {d_output.to(dtype), output.to(dtype), lse};
  return aside;
}

// What rows make NaN of a key head's keys and values: whole ones, and columns of values.
class NanKeys {
 public:
  NanKeys(std::int64_t tk, std::int64_t dv)
      : words_(static_cast<std::size_t>(dv + 63) / 64),
        whole_(static_cast<std::size_t>(tk + 1)),
        key_(whole_.size()),
        columns_(whole_.size() * words_) {}

  void add_whole(std::int64_t first, std::int64_t last) {
    if (first < last) ++whole_[static_cast<std::size_t>(first)], --whole_[static_cast<std::size_t>(last)];
  }

  void add(std::int64_t j, const Columns& columns) {
    const auto key = static_cast<std::size_t>(j);
    key_[key] = 1;
    for (std::size_t n = 0; n < words_; ++n) columns_[key * words_ + n] |= columns[n];
  }

  // Keys and values (tk, width).
  void write(const Tensor& keys, const Tensor& values) const {
    std::int64_t rows = 0;
    for (std::int64_t j = 0; j < keys.size(0); ++j) {
      const auto key = static_cast<std::size_t>(j);
      rows += whole_[key];
      if (rows > 0 || key_[key]) keys.select(0, j).fill(std::nan(""));
      Tensor value = values.select(0, j);
      if (rows > 0) value.fill(std::nan(""));
      for (std::int64_t c = 0; rows == 0 && key_[key] && c < value.size(0); ++c) {
        if (columns_[key * words_ + static_cast<std::size_t>(c / 64)] >> (c % 64) & 1) value.set({c}, std::nan(""));
      }
    }
  }

 private:
  std::size_t words_;
  std::vector<std::int64_t> whole_;  // rows that begin to see keys less those that end, at each key
  std::vector<char> key_;
  Columns columns_;
};

// The columns of a row that are not finite.
Columns columns_of(std::span<const SpecialRow> specials, std::int64_t row, std::int64_t width) {
  Columns columns(static_cast<std::size_t>((width + 63) / 64));
  const auto found = std::lower_bound(specials.begin(), specials.end(), row,
                                      [](const SpecialRow& s, std::int64_t token) { return s.token < token; });
  if (found == specials.end() || found->token != row) return columns;
  for (std::size_t n = 0; n < columns.size(); ++n) columns[n] = found->above[n] | found->below[n];
  return columns;
}

// Writes the NaN that rows set aside bring to one key head: their own gradients and those of the keys that they see; of
// the values the columns where the incoming gradient is not finite.
void spread(std::span<const AsideRow> rows, const Sizes& p, const AttentionOptions& options, const Specials& d_output,
            AttentionGradient& grad) {
  const Part& part = *rows.front().part;
  const Piece& piece = part.piece;
  const kernels::Problem& problem = part.problem;
  NanKeys nan_keys(piece.tk, p.dv);
  const std::int64_t b = piece.batch + rows.front().b, head = rows.front().h / (p.hq / p.hkv);
  const bool by_cell = hides_cells(problem);
  const ScoreGradients scores(p, options, grad);
  for (const AsideRow& row : rows) {
    if (row.kind == AsideRow::finite) continue;
    const std::int64_t i = piece.query + row.i;
    const std::int64_t first = problem.first[row.i], last = problem.last[row.i];
    const bool of_gradient = row.kind == AsideRow::gradient;
    bool sees_any = !by_cell && first < last;
    if (!by_cell && !of_gradient) {
      nan_keys.add_whole(first, last);
    } else {
      const Columns own = of_gradient ? columns_of(d_output.of(b, row.h), i, p.dv) : Columns{};
      for (std::int64_t j = first; j < last; ++j) {
        if (by_cell && !sees(problem, row.b, row.h, row.i, j)) continue;
        sees_any = true;
        of_gradient ? nan_keys.add(j, own) : nan_keys.add_whole(j, j + 1);
        if (by_cell) scores.add(row, j, std::nan(""));
      }
    }
    if (sees_any) Tensor(grad.q.select(0, b).select(0, row.h).select(0, i)).fill(std::nan(""));
  }
  const auto of_piece = [&](const Tensor& t) {
    return t.select(0, b).select(0, head).slice(0, piece.key, piece.key + piece.tk);
  };
  nan_keys.write(of_piece(grad.k), of_piece(grad.v));
}

}  // namespace

// The gradients of a call with infinities or NaN, in memory linear in tokens: the kernels compute them without these,
// which are put where they belong, so that what is masked takes nothing from them.
AttentionGradient gradient_beside_specials(const Call& call, const Sizes& p, const AttentionOptions& options,
                                           Incoming in) {
  constexpr float kFar = 0x1p100F;  // scores of it are as far away as infinite ones
  const Specials d_output(in.d_output);
  const Incoming whole = in;
  const Tensor q = without_specials(call.q, kFar), k = without_specials(call.k, kFar);
  const ScoreBound bound(q, k, p.scale / (options.softcap > 0 ? options.softcap : 1));
  const std::vector<AsideRow> aside = set_aside(call, p, bound, in);
  const DType dtype = in.d_output.dtype();
  AttentionOptions own = options;
  if (call.q.dtype() == DType::f16) own.precision = Precision::highest;  // which has become float32, exactly
  Call clean(q.to(dtype), k.to(dtype), without_specials(call.v, 0).to(dtype), p, own);
  for (Part& part : clean.parts) part.problem.hides = true;
  AttentionGradient grad = run_backward(clean, p, options, in, DType::f32, false).grad;
  const auto head = [&](const AsideRow& row) { return std::tuple(row.part, row.b, row.h / (p.hq / p.hkv)); };
  std::vector<std::span<const AsideRow>> heads;
  for (std::size_t first = 0, end = 0; first < aside.size(); first = end) {
    while (end < aside.size() && head(aside[end]) == head(aside[first])) ++end;
    heads.push_back(std::span(aside).subspan(first, end - first));
  }
  const auto spread_all = [&](std::int64_t first, std::int64_t count) {
    for (const auto& rows :
         std::span(heads).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count))) {
      std::vector<RowPlace> finite;
      for (const AsideRow& row : rows) {
        if (row.kind == AsideRow::finite) finite.push_back(row);
      }
      add_exact_gradients(finite, call, whole, p, options, grad);
      if (finite.size() < rows.size()) spread(rows, p, options, d_output, grad);
    }
  };
  if (grad.bias.defined() || grad.relative_bias.defined()) {
    spread_all(0, static_cast<std::int64_t>(heads.size()));  // heads may share its cells
  } else {
    for_runs(static_cast<std::int64_t>(heads.size()), static_cast<double>(p.tq * p.tk), spread_all, 1);
  }
  const DType to = output_dtype(call.q, options);
  return {grad.q.to(to), grad.k.to(to), grad.v.to(to), grad.bias, {}, grad.relative_bias};
}

}  // namespace attn
