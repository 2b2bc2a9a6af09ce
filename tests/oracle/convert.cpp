#include "oracle/convert.hpp"

#include <algorithm>
#include <cstdio>

namespace oracle {
namespace {

using attn::DType;
using attn::Tensor;

Grid grid_of(const Tensor& t) {
  Grid grid;
  if (!t.defined()) return grid;
  grid.values = values(t);
  for (std::size_t i = 0; i < t.rank(); ++i) grid.size[4 - t.rank() + i] = t.shape()[i];
  return grid;
}

std::vector<std::int64_t> integers_of(const Tensor& t) {
  std::vector<std::int64_t> all;
  if (t.defined()) {
    for (const double x : values(t)) all.push_back(static_cast<std::int64_t>(x));
  }
  return all;
}

std::vector<std::int64_t> offsets_of(const attn::Offset& offset, std::int64_t batch) {
  if (offset.each().defined()) return integers_of(offset.each());
  return std::vector<std::int64_t>(static_cast<std::size_t>(batch), offset.of(0));
}

std::vector<double> values_of(const Tensor& t) { return t.defined() ? values(t) : std::vector<double>(); }

// The user's functions, a score at a time.
void take_score_function(const attn::ScoreFunction& f, Problem& p) {
  if (!f) return;
  const auto tile = [](double* score, std::int64_t b, const std::int32_t* h, const std::int32_t* i, std::int64_t j) {
    return attn::ScoreTile64{score, 1, 1, 1, 1, b, j, h, i};
  };
  p.change = [f, tile](double score, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    const auto head = static_cast<std::int32_t>(h), token = static_cast<std::int32_t>(i);
    const attn::ScoreTile64 one = tile(&score, b, &head, &token, j);
    f.forward64(&one, f.user);
    return score;
  };
  if (!f.backward64) return;
  p.change_slope = [f, tile](double score, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    const auto head = static_cast<std::int32_t>(h), token = static_cast<std::int32_t>(i);
    double slope = 1;
    const attn::ScoreTile64 one = tile(&score, b, &head, &token, j);
    f.backward64(&one, &slope, f.user);
    return slope;
  };
}

// How a dtype rounds: difference() allows twice `roundoff` of a number, and twice `least` near zero, where kernels may
// round to a normal number. `most` is its largest number.
struct Range {
  double roundoff, least, most;
};

Range range_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return {0x1p-53, 0, std::numeric_limits<double>::max()};
    case DType::bf16:
      return {0x1p-9, 0x1p-126, 0x1.fep127};
    case DType::f16:
      return {0x1p-12, 0x1p-25, 65504};
    default:
      return {0x1p-25, 0x1p-126, std::numeric_limits<float>::max()};
  }
}

}  // namespace

std::vector<double> values(const Tensor& t) {
  const Tensor flat = t.to(DType::f64).contiguous();
  const double* first = flat.data<double>();
  return {first, first + flat.numel()};
}

Problem problem_of(const Tensor& q, const Tensor& k, const Tensor& v, const attn::AttentionOptions& options) {
  Problem p;
  p.batch = q.size(0), p.query_heads = q.size(1), p.key_heads = k.size(1);
  p.queries = q.size(2), p.keys = k.size(2), p.depth = q.size(3), p.value_depth = v.size(3);
  p.q = values(q), p.k = values(k), p.v = values(v);
  p.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(p.depth)));
  p.softcap = options.softcap;
  const attn::Mask& mask = options.mask;
  p.causal = mask.is_causal, p.bottom_right = mask.align == attn::Align::bottom_right;
  p.window_left = mask.window_left, p.window_right = mask.window_right;
  p.key_lengths = integers_of(mask.key_lengths);
  p.query_starts = integers_of(mask.query_starts), p.key_starts = integers_of(mask.key_starts);
  if (options.query_offset.given() || options.key_offset.given()) {
    p.query_offset = offsets_of(options.query_offset, p.batch), p.key_offset = offsets_of(options.key_offset, p.batch);
  }
  p.keep = grid_of(mask.keep), p.bias = grid_of(mask.bias), p.block_keep = grid_of(mask.block_keep);
  p.block_query = mask.block_query, p.block_key = mask.block_key;
  p.slopes = values_of(options.alibi_slopes), p.sinks = values_of(options.sinks);
  if (const attn::RelativeBias& relative = options.relative_bias; relative.table.defined()) {
    p.relative = {values(relative.table), relative.table.size(0), relative.max_distance, relative.bidirectional};
  }
  take_score_function(options.score_function, p);
  p.dropout = options.dropout;
  set_roundoff(p, q.dtype(), options.precision);
  if (p.dropout > 0)
    p.dropout_keep = options.dropout_key ? philox_keep(p, *options.dropout_key) : grid_of(options.dropout_keep);
  return p;
}

// The kernels compute in float32; of 16-bit inputs, weights and the gradients of scores are rounded to such floats.
void set_roundoff(Problem& p, DType inputs, attn::Precision precision) {
  p.roundoff = inputs == DType::f64 ? 0x1p-53 : inputs == DType::f32 ? 0x1p-24 : range_of(inputs).roundoff;
  p.least = range_of(inputs).least, p.most = range_of(inputs).most;
  p.score_roundoff = inputs == DType::f64 ? 0x1p-53 : 0x1p-24;
  if (inputs != DType::f32 || precision == attn::Precision::highest) return;
  p.roundoff = p.score_roundoff = precision == attn::Precision::high ? 0x1p-16 : 0x1p-9;
}

std::string difference(const Tensor& found, const Numbers& expected, double roundoff, const std::string& what, Of of) {
  constexpr double steps = 16;  // that a number passes through, each rounding
  const Range range = range_of(found.dtype());
  const std::vector<double> all = values(found);
  if (all.size() != expected.size()) return what + " has " + std::to_string(all.size()) + " elements";
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double value = expected[i].value, near = std::clamp(value, -range.most, range.most);
    const double error = std::fabs(all[i] - (std::isfinite(value) ? near : value));
    const double allowed = steps * roundoff * expected[i].size + 2 * range.roundoff * std::fabs(near) + 2 * range.least;
    // A gradient that may be as large as that by its error alone is infinite, too, past its dtype's range.
    const double reached = (all[i] > 0 ? value : -value) + (of == Of::gradient ? allowed : 0);
    const bool past = std::isinf(all[i]) && reached > range.most;
    const bool unknown = std::isnan(expected[i].size) || (!(expected[i].size < 1e38) && std::isfinite(value));
    const bool lost = of == Of::gradient && !std::isfinite(value) && !std::isfinite(all[i]);
    const bool alike =
        unknown || lost || all[i] == value || past || (std::isnan(all[i]) && std::isnan(value)) || error <= allowed;
    if (alike) continue;
    char text[200];
    std::snprintf(text, sizeof text, " element %zu: found %.9g, expected %.9g, within %.3g", i, all[i], value, allowed);
    return what + text;
  }
  return {};
}

}  // namespace oracle
