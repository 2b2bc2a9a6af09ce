#include "attention/validate.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "attention/relative_bias.hpp"
#include "attn/error.hpp"
#include "core/decimal.hpp"
#include "core/known.hpp"

namespace attn {
namespace {

using Kind = Error::Kind;

// Texts are made only here: a call that is in order must not pay for them.
[[noreturn]] void fail(Kind kind, const std::string& expected, const std::string& found, const char* hint = "") {
  throw Error(kind, "attention", expected, found, hint);
}

std::string shapes(const Tensor& q, const Tensor& k, const Tensor& v) {
  return "q " + q.shape().str() + ", k " + k.shape().str() + ", v " + v.shape().str();
}

void check_dtypes(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (!is_floating(q.dtype())) fail(Kind::dtype, "q of a floating dtype", std::string(name(q.dtype())));
  if (!(q.dtype() == k.dtype() && q.dtype() == v.dtype()))
    fail(Kind::dtype, "q, k and v of one dtype",
         std::string(name(q.dtype())) + ", " + std::string(name(k.dtype())) + ", " + std::string(name(v.dtype())),
         "convert with to(dtype)");
}

void check_cells(const Tensor& t, bool has_dtype, const char* what, const char* dtype, const char* hint,
                 const char* sizes, const Shape& shape) {
  if (!has_dtype) fail(Kind::dtype, std::string(what) + " of " + dtype, std::string(name(t.dtype())), hint);
  if (!broadcasts_to(t.shape(), shape))
    fail(Kind::shape, std::string(what) + " that broadcasts to " + sizes + " = " + shape.str(), t.shape().str());
}

void check_mask(const Mask& mask, const Sizes& p) {
  constexpr const char* scores = "(b, h, tq, tk)";
  const auto is_boolean = [](const Tensor& t) { return t.dtype() == DType::boolean; };
  if (mask.keep.defined())
    check_cells(mask.keep, is_boolean(mask.keep), "mask.keep", "dtype bool (true = allowed)",
                "use Mask::additive for a mask that is added to the scores", scores, p.scores_shape());
  if (mask.bias.defined())
    check_cells(mask.bias, is_floating(mask.bias.dtype()), "mask.bias", "a floating dtype",
                "use Mask::boolean for a mask of true and false", scores, p.scores_shape());
  if (!mask.block_keep.defined()) {
    if (mask.block_query == 0 && mask.block_key == 0) return;
    fail(Kind::argument, "block_keep beside block_query and block_key",
         "sizes of " + std::to_string(mask.block_query) + " and " + std::to_string(mask.block_key) + " alone");
  }
  if (!(mask.block_query >= 1 && mask.block_key >= 1))
    fail(Kind::argument, "block_query and block_key of at least 1",
         std::to_string(mask.block_query) + " and " + std::to_string(mask.block_key));
  check_cells(mask.block_keep, is_boolean(mask.block_keep), "mask.block_keep", "dtype bool (true = allowed)",
              "convert with to(DType::boolean)", "(b, h, tq / block_query, tk / block_key)", block_shape(p, mask));
}

void require_int64(const Tensor& t, const char* what, const std::string& shape, bool fits) {
  if (t.dtype() != DType::i64) fail(Kind::dtype, std::string(what) + " of dtype int64", std::string(name(t.dtype())));
  if (!fits) fail(Kind::shape, std::string(what) + " of shape " + shape, t.shape().str());
}

// Element i of a line of int64, of which a double would hold 53 bits.
std::int64_t number(const Tensor& t, std::int64_t i) { return t.data<std::int64_t>()[i * t.stride(0)]; }

// Cumulative lengths: 0 first, never falling, `total` last.
void check_starts(const Tensor& starts, const char* what, std::int64_t total) {
  require_int64(starts, what, "(n + 1)", starts.rank() == 1 && starts.numel() >= 1);
  std::int64_t before = 0;
  bool rising = number(starts, 0) == 0;
  for (std::int64_t i = 0; i < starts.numel(); ++i) {
    rising = rising && number(starts, i) >= before;
    before = number(starts, i);
  }
  if (!(rising && before == total))
    fail(Kind::argument, std::string(what) + " that start at 0, never fall and end at " + std::to_string(total),
         std::to_string(starts.numel()) + " values that do not");
}

constexpr std::int64_t kMostOffset = std::int64_t{1} << 30;  // positions are below 2^31

void check_offset(const Offset& offset, const char* what, const Sizes& p) {
  if (!offset.given()) return;
  const bool one = !offset.each().defined();
  if (!one) require_int64(offset.each(), what, "(b)", offset.each().shape() == Shape{p.batch});
  for (std::int64_t b = 0; b < (one ? 1 : p.batch); ++b) {
    if (offset.of(b) >= 0 && offset.of(b) <= kMostOffset) continue;
    fail(Kind::argument, std::string(what) + " from 0 to 2^30", std::to_string(offset.of(b)));
  }
}

void check_offsets(const AttentionOptions& options, const Sizes& p) {
  check_offset(options.query_offset, "query_offset", p);
  check_offset(options.key_offset, "key_offset", p);
  if (!options.query_offset.given() && !options.key_offset.given()) return;
  if (options.mask.align != Align::top_left)
    fail(Kind::argument, "a mask aligned top_left with offsets", "bottom_right",
         "the offsets say where the diagonal lies: bottom_right is query_offset = tk - tq");
}

void check_head_range(const HeadRange& heads, const Sizes& p) {
  if (heads.first == 0 && heads.all == 0) return;
  const bool in_range = heads.first >= 0 && heads.all < (std::int64_t{1} << 30) && p.hq <= heads.all - heads.first;
  const std::int64_t group = p.hq == 0 ? 1 : p.hq / p.hkv;
  if (in_range && heads.first % group == 0 && heads.all % group == 0) return;
  fail(Kind::argument, "heads that are whole groups among all of a layer's",
       std::to_string(p.hq) + " from " + std::to_string(heads.first) + " on, of " + std::to_string(heads.all));
}

void check_output_dtype(const AttentionOptions& options, DType dtype) {
  if (!options.output_dtype || *options.output_dtype == dtype) return;
  if (*options.output_dtype == DType::f32 && is_floating(dtype) && size_of(dtype) == 2) return;
  fail(Kind::dtype, "an output of q's dtype, or of float32 for 16-bit inputs",
       std::string(name(*options.output_dtype)) + " for " + std::string(name(dtype)));
}

void check_heads(const Tensor& t, const char* what, std::int64_t hq) {
  if (!t.defined()) return;
  if (!is_floating(t.dtype()))
    fail(Kind::dtype, std::string(what) + " of a floating dtype", std::string(name(t.dtype())));
  if (t.shape() != Shape{hq})
    fail(Kind::shape, std::string(what) + " of shape (hq,) = " + Shape{hq}.str(), t.shape().str());
}

void check_weight_rows(const AttentionOptions& options, std::int64_t tq) {
  const Tensor& rows = options.weight_rows;
  if (!rows.defined()) return;
  if (!options.return_weights) fail(Kind::argument, "return_weights with weight_rows", "return_weights = false");
  require_int64(rows, "weight_rows", "(n)", rows.rank() == 1);
  for (std::int64_t r = 0; r < rows.numel(); ++r) {
    const std::int64_t row = number(rows, r);
    if (!(row >= 0 && row < tq))
      fail(Kind::argument, "weight_rows from 0 to tq - 1 = " + std::to_string(tq - 1), std::to_string(row));
  }
}

// Queries are multiplied by scale, or by scale / softcap, in float32, where less than 2^-126 is 0.
void check_scale(double scale, double softcap) {
  if (!std::isfinite(scale)) fail(Kind::argument, "a finite scale", "a scale that is not finite");
  const double size = std::fabs(scale);
  if (scale != 0 && (size < 0x1p-100 || size < softcap * 0x1p-110))
    fail(Kind::argument, "a scale of 0, or of magnitude at least 2^-100 and softcap / 2^110", shortest_decimal(scale));
}

void check_numbers(const AttentionOptions& options, const Shape& scores) {
  if (options.softcap != 0 && !(options.softcap >= 0x1p-64 && options.softcap <= 0x1p64))  // float32 divides by it
    fail(Kind::argument, "a softcap of 0 (none), or from 2^-64 to 2^64", shortest_decimal(options.softcap));
  if (options.scale) check_scale(*options.scale, options.softcap);
  const ScoreFunction& score = options.score_function;
  if (!score && (score.forward64 || score.backward || score.backward64))
    fail(Kind::argument, "score_function.forward", "its other functions alone");
  if (!(options.dropout >= 0 && options.dropout <= 1))
    fail(Kind::argument, "dropout in [0, 1]", shortest_decimal(options.dropout));
  const Tensor& keep = options.dropout_keep;
  if (keep.defined() && options.dropout_key) fail(Kind::argument, "dropout_keep or dropout_key", "both");
  if (!keep.defined() && (options.dropout == 0 || options.dropout_key)) return;
  if (!(keep.defined() && keep.dtype() == DType::boolean && broadcasts_to(keep.shape(), scores)))
    fail(Kind::argument, "dropout_keep: booleans that broadcast to " + scores.str(),
         keep.defined() ? std::string(name(keep.dtype())) + " " + keep.shape().str() : "none",
         "draw it with Generator::dropout_keep, or give a dropout_key");
}

// Sums and products of what passes do not overflow.
void check_range(const Sizes& p, const Tensor& q, const Tensor& k, const Tensor& v) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (!(p.tq < most && p.tk < most)) fail(Kind::shape, "fewer than 2^30 tokens", shapes(q, k, v));
  if (!(p.d < most && p.dv < most)) fail(Kind::shape, "a head_dim below 2^30", shapes(q, k, v));
  if (!(p.batch < most && p.hq < most && p.batch * p.hq < most))
    fail(Kind::shape, "fewer than 2^30 heads in all", shapes(q, k, v));
}

}  // namespace

void check_positions(const Mask& mask, const Sizes& p) {
  if (!(mask.window_left >= -1 && mask.window_right >= -1))
    fail(Kind::argument, "window sides of -1 (no limit) or more",
         std::to_string(mask.window_left) + " and " + std::to_string(mask.window_right));
  if (!(mask.query_starts.defined() == mask.key_starts.defined()))
    fail(Kind::argument, "query_starts and key_starts", "only one");
  if (mask.query_starts.defined()) {
    if (!(p.batch == 1 && !mask.key_lengths.defined()))
      fail(Kind::argument, "packed sequences in a batch of 1, without key_lengths",
           p.batch == 1 ? "key_lengths" : "batch " + std::to_string(p.batch));
    check_starts(mask.query_starts, "query_starts", p.tq);
    check_starts(mask.key_starts, "key_starts", p.tk);
    if (!(mask.query_starts.numel() == mask.key_starts.numel()))
      fail(Kind::shape, "as many query_starts as key_starts",
           std::to_string(mask.query_starts.numel()) + " and " + std::to_string(mask.key_starts.numel()));
  }
  if (!mask.key_lengths.defined()) return;
  require_int64(mask.key_lengths, "key_lengths", "(b)", mask.key_lengths.shape() == Shape{p.batch});
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const std::int64_t length = number(mask.key_lengths, b);
    if (!(length >= 0 && length <= p.tk))
      fail(Kind::argument, "key_lengths from 0 to tk = " + std::to_string(p.tk), std::to_string(length));
  }
}

bool broadcasts_to(const Shape& tensor, const Shape& shape) {
  if (tensor.size() > shape.size()) return false;
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    const std::int64_t have = tensor[tensor.size() - 1 - i], want = shape[shape.size() - 1 - i];
    if (have != want && have != 1) return false;
  }
  return true;
}

Shape block_shape(const Sizes& p, const Mask& mask) {
  const auto blocks = [](std::int64_t tokens, std::int64_t size) { return tokens / size + (tokens % size != 0); };
  return {p.batch, p.hq, blocks(p.tq, mask.block_query), blocks(p.tk, mask.block_key)};
}

Tensor stand_in(const Shape& shape, DType dtype) {
  static double zero = 0;
  Shape strides = shape;
  std::fill(strides.begin(), strides.end(), 0);
  return Tensor::from_blob(&zero, shape, strides, dtype);
}

Sizes validate(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  if (!(q.rank() == 4 && k.rank() == 4 && v.rank() == 4))
    fail(Kind::shape, "q (b, hq, tq, d), k (b, hkv, tk, d), v (b, hkv, tk, dv)", shapes(q, k, v),
         "add dimensions with unsqueeze(0)");
  check_dtypes(q, k, v);
  if (!(q.size(0) == k.size(0) && q.size(0) == v.size(0))) fail(Kind::shape, "one batch size", shapes(q, k, v));
  if (!(k.size(1) == v.size(1))) fail(Kind::shape, "as many key heads as value heads", shapes(q, k, v));
  if (!(k.size(2) == v.size(2))) fail(Kind::shape, "as many keys as values", shapes(q, k, v));
  if (!(q.size(3) == k.size(3))) fail(Kind::shape, "queries and keys of one head_dim", shapes(q, k, v));
  if (q.size(3) < 1) fail(Kind::shape, "a head_dim of at least 1", shapes(q, k, v));
  const bool divides = k.size(1) == 0 ? q.size(1) == 0 : q.size(1) % k.size(1) == 0;
  if (!divides) fail(Kind::shape, "query heads a multiple of key heads", shapes(q, k, v));

  Sizes p{q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3), v.size(3), 0};
  p.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(p.d)));
  check_range(p, q, k, v);
  require_known("attention", "mask.align", options.mask.align, Align::bottom_right);
  require_known("attention", "precision", options.precision, Precision::medium);
  check_mask(options.mask, p);
  check_positions(options.mask, p);
  check_offsets(options, p);
  check_head_range(options.heads, p);
  check_output_dtype(options, q.dtype());
  check_heads(options.alibi_slopes, "alibi_slopes", p.hq);
  check_heads(options.sinks, "sinks", p.hq);
  check_relative_bias(options.relative_bias, p.hq);
  check_weight_rows(options, p.tq);
  check_numbers(options, p.scores_shape());
  return p;
}

}  // namespace attn
