// Gradients of calls with infinities or NaN.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <span>
#include <tuple>

#include "attention/far_rows.hpp"
#include "attention/special.hpp"

namespace attn {
namespace {

// A query whose gradient the kernels cannot compute.
struct LostRow : RowPlace {
  enum { finite, gradient, weights } kind;  // its numbers are too large; what comes in, or its weights, are not finite
};

// What scores may reach, of queries and keys (b, h, t, d) in float32 and contiguous, without infinities and NaN.
class Reach {
 public:
  Reach(const Tensor& q, const Tensor& k, double factor) : q_(q), most_(magnitudes_by_column(k)), factor_(factor) {}

  // Whether no sum of products of a query, as the kernels take it, leaves float32's range.
  bool stays(std::int64_t b, std::int64_t h, std::int64_t i) const {
    const float* q = row(b, h, i);
    const double* most = most_.data<double>() + (b * most_.size(1) + h / (q_.size(1) / most_.size(1))) * q_.size(3);
    double sum = 0, largest = 0;
    for (std::int64_t c = 0; c < q_.size(3); ++c) {
      const double x = std::fabs(static_cast<double>(q[c]) * factor_);
      sum += x * most[c], largest = std::max(largest, x);
    }
    return sum < 0x1p127 && largest < 0x1p127;
  }

  // Makes a query's numbers 0, so that its scores are finite.
  void clear(std::int64_t b, std::int64_t h, std::int64_t i) const { std::fill_n(row(b, h, i), q_.size(3), 0.F); }

 private:
  float* row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return q_.data<float>() + ((b * q_.size(1) + h) * q_.size(2) + i) * q_.size(3);
  }

  Tensor q_, most_;
  double factor_;
};

// The rows of a call that are lost, in order. `in` becomes finite: lost rows have queries and weights of zero then, or,
// where it is the incoming gradient alone that is not finite, take part with what is.
std::vector<LostRow> lose_rows(const Call& call, const Sizes& p, const Reach& reach, Incoming& in) {
  std::vector<LostRow> lost;
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
    const bool far =
        !(std::fabs(sum) < 2e38F) || size > 1e38 || !reach.stays(part.piece.batch + b, h, part.piece.query + i);
    const bool whole = is_whole(in.d_output) && is_whole(in.output);
    if (!far && whole) return;
    if (far) std::fill(d_row, d_row + p.dv, 0.F);
    const auto kind = !far ? LostRow::gradient : whole && std::isfinite(sum) ? LostRow::finite : LostRow::weights;
    if (far) sum = 1e38F, reach.clear(part.piece.batch + b, h, part.piece.query + i);
    const std::lock_guard lock(mutex);
    lost.push_back({{&part, b, h, i}, kind});
  });
  const auto place = [](const LostRow& row) { return std::tuple(row.part, row.b, row.h, row.i); };
  std::sort(lost.begin(), lost.end(), [&](const LostRow& a, const LostRow& b) { return place(a) < place(b); });
  const DType dtype = in.d_output.dtype() == DType::bf16 ? DType::bf16 : DType::f32;
  in = {d_output.to(dtype), output.to(dtype), lse};
  return lost;
}

// What rows make NaN of a key head's keys and values: whole ones, and columns of values.
class Reached {
 public:
  Reached(std::int64_t tk, std::int64_t dv)
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

// What lost rows of one key head make NaN: their own gradients and those of the keys that they see; of the values the
// columns where the incoming gradient is not finite.
void spread(std::span<const LostRow> rows, const Sizes& p, const AttentionOptions& options, const Specials& d_output,
            AttentionGradient& grad) {
  const Part& part = *rows.front().part;
  const Piece& piece = part.piece;
  const kernels::Problem& problem = part.problem;
  Reached reached(piece.tk, p.dv);
  const std::int64_t b = piece.batch + rows.front().b, head = rows.front().h / (p.hq / p.hkv);
  const bool by_cell = hides_cells(problem);
  const ScoreGradients scores(p, options, grad);
  for (const LostRow& row : rows) {
    if (row.kind == LostRow::finite) continue;
    const std::int64_t i = piece.query + row.i, place = row.b * problem.interval_batch + row.i;
    const std::int64_t first = problem.first[place], last = problem.last[place];
    const bool of_gradient = row.kind == LostRow::gradient;
    bool sees_any = !by_cell && first < last;
    if (!by_cell && !of_gradient) {
      reached.add_whole(first, last);
    } else {
      const Columns own = of_gradient ? columns_of(d_output.of(b, row.h), i, p.dv) : Columns{};
      for (std::int64_t j = first; j < last; ++j) {
        if (by_cell && !sees(problem, row.b, row.h, row.i, j)) continue;
        sees_any = true;
        of_gradient ? reached.add(j, own) : reached.add_whole(j, j + 1);
        if (by_cell) scores.add(row, j, std::nan(""));
      }
    }
    if (sees_any) Tensor(grad.q.select(0, b).select(0, row.h).select(0, i)).fill(std::nan(""));
  }
  const auto of_piece = [&](const Tensor& t) {
    return t.select(0, b).select(0, head).slice(0, piece.key, piece.key + piece.tk);
  };
  reached.write(of_piece(grad.k), of_piece(grad.v));
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
  const Reach reach(q, k, p.scale / (options.softcap > 0 ? options.softcap : 1));
  const std::vector<LostRow> lost = lose_rows(call, p, reach, in);
  const DType dtype = in.d_output.dtype();
  AttentionOptions own = options;
  if (call.q.dtype() == DType::f16) own.precision = Precision::highest;  // which has become float32, exactly
  Call clean(q.to(dtype), k.to(dtype), without_specials(call.v, 0).to(dtype), p, own);
  for (Part& part : clean.parts) part.problem.hides = true;
  AttentionGradient grad = run_backward(clean, p, options, in, DType::f32, false).grad;
  const auto head = [&](const LostRow& row) { return std::tuple(row.part, row.b, row.h / (p.hq / p.hkv)); };
  std::vector<std::span<const LostRow>> heads;
  for (std::size_t first = 0, end = 0; first < lost.size(); first = end) {
    while (end < lost.size() && head(lost[end]) == head(lost[first])) ++end;
    heads.push_back(std::span(lost).subspan(first, end - first));
  }
  const auto spread_all = [&](std::int64_t first, std::int64_t count) {
    for (const auto& rows :
         std::span(heads).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count))) {
      std::vector<RowPlace> far;
      for (const LostRow& row : rows) {
        if (row.kind == LostRow::finite) far.push_back(row);
      }
      add_far_rows(far, call, whole, p, options, grad);
      if (far.size() < rows.size()) spread(rows, p, options, d_output, grad);
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
