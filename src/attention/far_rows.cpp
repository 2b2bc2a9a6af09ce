#include "attention/far_rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/composed.hpp"
#include "attention/relative_bias.hpp"
#include "attention/row.hpp"
#include "attention/score_tiles.hpp"
#include "attn/reference.hpp"

namespace attn {

ScoreGradients::ScoreGradients(const Sizes& p, const AttentionOptions& options, const AttentionGradient& grad)
    : relative_(options.relative_bias), table_(grad.relative_bias) {
  if (grad.bias.defined()) cells_ = grad.bias.expand(p.scores_shape());
}

void ScoreGradients::add(const RowPlace& row, std::int64_t j, double d_score) const {
  const Piece& piece = row.part->piece;
  if (cells_.defined()) {
    const std::int64_t at[] = {piece.batch + row.b, row.h, piece.query + row.i, piece.key + j};
    std::int64_t place = 0;
    for (std::size_t dim = 0; dim < 4; ++dim) place += at[dim] * cells_.stride(static_cast<std::int64_t>(dim));
    cells_.data<float>()[place] += static_cast<float>(d_score);
  }
  if (!table_.defined()) return;
  const std::int64_t bucket =
      relative_bucket(j - piece.centre(row.i), table_.size(0), relative_.bidirectional, relative_.max_distance);
  table_.data<double>()[bucket * table_.size(1) + row.h] += d_score;
}

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

double product(double x, double y) { return x == 0 || y == 0 ? 0 : x * y; }

double dot(const double* x, const double* y, std::int64_t n) {
  double sum = 0;
  for (std::int64_t c = 0; c < n; ++c) sum += product(x[c], y[c]);
  return sum;
}

// A row of (b, h, t, width) as a line of its own.
Tensor line(const Tensor& t, std::int64_t b, std::int64_t h, std::int64_t i) {
  return t.select(0, b).select(0, h).select(0, i).to(DType::f64).contiguous();
}

// What a row's scores became on the way to weights, over the tensor's keys; keys outside of [first, last) count for
// nothing.
struct FarRow {
  AttentionOptions options;
  std::int64_t first, last;
  Tensor scaled, capped;        // (1, 1, 1, tk) float64
  std::vector<double> weights;  // over all that the whole row sees
  double share = 1;             // of these keys, where the row sees others, too

  // Of products q · k.
  FarRow(const RowPlace& row, const Tensor& products, const Sizes& p, const AttentionOptions& of, float lse)
      : scaled(products), capped(products) {
    const Piece& piece = row.part->piece;
    const std::int64_t b = piece.batch + row.b, i = piece.query + row.i;
    options = row_options(p, of, piece, b, row.h, i);
    if (options.dropout_keep.defined()) options.dropout_keep = options.dropout_keep.contiguous();
    first = piece.key + piece.seen(row.i).first, last = piece.key + piece.seen(row.i).last;
    double* s = scaled.data<double>();
    for (std::int64_t j = first; j < last; ++j) s[j] *= p.scale;
    if (options.softcap > 0) capped = reference::softcap(scaled, options.softcap);
    set_weights(options.score_function ? apply_score_function(capped, options.score_function, {{0, 0}}) : capped, lse);
  }

 private:
  void set_weights(const Tensor& scores, float lse) {
    const Tensor all = scores.clone();
    const Tensor bias = options.mask.bias.defined() ? options.mask.bias.to(DType::f64).contiguous() : Tensor{};
    double *s = all.data<double>(), most = options.sinks.defined() ? options.sinks.at({0}) : -kInf, sum = 0;
    for (std::int64_t j = first; j < last; ++j) {
      if (bias.defined()) s[j] = bias.data<double>()[j] == -kInf ? -kInf : s[j] + bias.data<double>()[j];
      if (!options.mask.keep.data<bool>()[j]) s[j] = -kInf;
      most = std::max(most, s[j]);
    }
    weights.assign(static_cast<std::size_t>(all.size(3)), 0);
    share = 0;
    if (most == -kInf) return;  // the row sees other keys alone
    if (options.sinks.defined()) sum = std::exp(options.sinks.at({0}) - most);
    for (std::int64_t j = first; j < last; ++j) {
      if (s[j] < most - 750) continue;  // of most rows all but one
      sum += weights[static_cast<std::size_t>(j)] = std::exp(s[j] - most);
    }
    share = share_of(most + std::log(sum), static_cast<double>(lse), 0x1p-19);
    for (double& weight : weights) weight = product(weight, share / sum);  // what is masked stays 0 beside a NaN
  }
};

// A key head's keys and values, and their gradients.
class Head {
 public:
  Head(const Call& call, const Sizes& p, const RowPlace& of)
      : p_(p), b_(of.part->piece.batch + of.b), head_(of.h / (p.hq / p.hkv)) {
    const auto rows = [&](const Tensor& t) { return t.select(0, b_).select(0, head_); };
    turned_ = rows(call.k).transpose(0, 1).to(DType::f64).contiguous();
    k_ = rows(call.k), v_ = rows(call.v);
    dk_ = Tensor::zeros({p.tk, p.d}, DType::f64), dv_ = Tensor::zeros({p.tk, p.dv}, DType::f64);
  }

  // q · k of keys [first, last), keys across the lanes.
  Tensor products(const Tensor& q, std::int64_t first, std::int64_t last) const {
    const Tensor sums = Tensor::zeros({1, 1, 1, p_.tk}, DType::f64);
    double* out = sums.data<double>();
    const double *x = q.data<double>(), *k = turned_.data<double>();
    const std::int64_t tk = p_.tk, d = p_.d;
    std::int64_t c = 0;
    for (; c + 4 <= d; c += 4, x += 4, k += 4 * tk) {
      for (std::int64_t j = first; j < last; ++j)
        out[j] += x[0] * k[j] + x[1] * k[tk + j] + x[2] * k[2 * tk + j] + x[3] * k[3 * tk + j];
    }
    for (; c < d; ++c, ++x, k += tk) {
      for (std::int64_t j = first; j < last; ++j) out[j] += *x * k[j];
    }
    return sums;
  }

  void add(const RowPlace& row, const Call& call, const Incoming& in, const AttentionOptions& options,
           const AttentionGradient& grad) {
    const Piece& piece = row.part->piece;
    const std::int64_t i = piece.query + row.i;
    const Tensor q = line(call.q, b_, row.h, i), d_output = line(in.d_output, b_, row.h, i),
                 output = line(in.output, b_, row.h, i);
    const auto [first, last] = piece.seen(row.i);
    const FarRow far(row, products(q, piece.key + first, piece.key + last), p_, options,
                     in.lse.data<float>()[(b_ * p_.hq + row.h) * p_.tq + i]);
    const Tensor d_scores = add_values(far, d_output, output);
    const ScoreGradients scores(p_, options, grad);
    for (std::int64_t j = far.first; j < far.last; ++j) {
      if (d_scores.data<double>()[j] != 0) scores.add(row, j - piece.key, d_scores.data<double>()[j]);
    }
    Tensor d = d_scores;
    if (options.score_function) d = score_function_backward(d, far.capped, far.options.score_function, {{0, 0}});
    if (options.softcap > 0) d = reference::softcap_backward(d, far.scaled, options.softcap);
    Tensor dq = Tensor::zeros({p_.d}, DType::f64);
    for (std::int64_t j = far.first; j < far.last; ++j) {
      const double d_score = d.data<double>()[j] * p_.scale;
      if (d_score == 0 || far.weights[static_cast<std::size_t>(j)] == 0) continue;  // a masked key may hold NaN
      double* dk = dk_.data<double>() + j * p_.d;
      for (std::int64_t c = 0; c < p_.d; ++c) {
        dq.data<double>()[c] += product(d_score, turned_.data<double>()[c * p_.tk + j]);
        dk[c] += product(d_score, q.data<double>()[c]);
      }
    }
    add_to(grad.q.select(0, b_).select(0, row.h).select(0, i), dq);
  }

  void finish(const AttentionGradient& grad) const {
    add_to(grad.k.select(0, b_).select(0, head_), dk_);
    add_to(grad.v.select(0, b_).select(0, head_), dv_);
  }

 private:
  // The values' gradient, and that of the scores, (1, 1, 1, tk).
  Tensor add_values(const FarRow& far, const Tensor& d_output, const Tensor& output) {
    const Tensor d_scores = Tensor::zeros({1, 1, 1, p_.tk}, DType::f64);
    double mean = far.share == 1 ? 0 : dot(d_output.data<double>(), output.data<double>(), p_.dv);
    double* d = d_scores.data<double>();
    const double kept = 1 / (1 - far.options.dropout);
    for (std::int64_t j = far.first; j < far.last; ++j) {
      const double weight = far.weights[static_cast<std::size_t>(j)];
      const bool drops = far.options.dropout > 0 && !far.options.dropout_keep.data<bool>()[j];
      if (weight == 0 || drops) continue;
      const double factor = far.options.dropout > 0 ? kept : 1;
      const Tensor value = v_.select(0, j).to(DType::f64).contiguous();
      d[j] = factor * dot(d_output.data<double>(), value.data<double>(), p_.dv);
      if (far.share == 1) mean += weight * d[j];
      double* dv = dv_.data<double>() + j * p_.dv;
      for (std::int64_t c = 0; c < p_.dv; ++c) dv[c] += product(weight * factor, d_output.data<double>()[c]);
    }
    for (std::int64_t j = far.first; j < far.last; ++j)
      d[j] = product(far.weights[static_cast<std::size_t>(j)], d[j] - mean);
    return d_scores;
  }

  static void add_to(const Tensor& to, const Tensor& from) { to.copy_from(reference::add(to.to(DType::f64), from)); }

  const Sizes& p_;
  std::int64_t b_, head_;
  Tensor turned_, k_, v_, dk_, dv_;  // keys (d, tk)
};

}  // namespace

void add_far_rows(std::span<const RowPlace> rows, const Call& call, const Incoming& in, const Sizes& p,
                  const AttentionOptions& options, const AttentionGradient& grad) {
  if (rows.empty()) return;
  Head head(call, p, rows.front());
  for (const RowPlace& row : rows) head.add(row, call, in, options, grad);
  head.finish(grad);
}

}  // namespace attn
