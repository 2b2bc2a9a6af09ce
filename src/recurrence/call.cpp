#include "recurrence/call.hpp"

#include <cmath>
#include <string>

#include "attn/error.hpp"
#include "core/decimal.hpp"
#include "core/known.hpp"

namespace attn::recurrence {
namespace {

using Kind = Error::Kind;

constexpr std::int64_t kMost = std::int64_t{1} << 30;       // tokens, and heads in all
constexpr std::int64_t kMostState = std::int64_t{1} << 28;  // numbers of a state

// Checks the arguments of one function. Texts are made only for what does not fit.
class Checks {
 public:
  explicit Checks(const char* op) : op_(op) {}

  [[noreturn]] void fail(Kind kind, const std::string& expected, const std::string& found,
                         const char* hint = "") const {
    throw Error(kind, op_, expected, found, hint);
  }

  void floating(const Tensor& t, const char* what) const {
    if (!is_floating(t.dtype()))
      fail(Kind::dtype, std::string(what) + " of a floating dtype", std::string(name(t.dtype())));
  }

  void shape(const Tensor& t, const char* what, const char* names, const Shape& shape) const {
    if (t.shape() != shape)
      fail(Kind::shape, std::string(what) + " of shape " + names + " = " + shape.str(), t.shape().str());
  }

  void int64(const Tensor& t, const char* what, const char* names, bool fits) const {
    if (t.dtype() != DType::i64) fail(Kind::dtype, std::string(what) + " of dtype int64", std::string(name(t.dtype())));
    if (!fits) fail(Kind::shape, std::string(what) + " of shape " + names, t.shape().str());
  }

 private:
  const char* op_;
};

std::int64_t number(const Tensor& t, std::int64_t i) { return t.data<std::int64_t>()[i * t.stride(0)]; }

Sizes check_inputs(const Checks& check, const Tensor& q, const Tensor& k, const Tensor& v) {
  for (const Tensor* t : {&q, &k, &v})
    if (!t->defined()) check.fail(Kind::argument, "q, k and v", "a tensor that holds nothing");
  check.floating(q, "q");
  if (q.dtype() != k.dtype() || q.dtype() != v.dtype())
    check.fail(Kind::dtype, "q, k and v of one dtype",
               std::string(name(q.dtype())) + ", " + std::string(name(k.dtype())) + ", " + std::string(name(v.dtype())),
               "convert with to(dtype)");
  const std::string found = "q " + q.shape().str() + ", k " + k.shape().str() + ", v " + v.shape().str();
  const bool ranks = q.rank() == 4 && k.rank() == 4 && v.rank() == 4;
  if (!ranks || k.size(0) != q.size(0) || v.size(0) != q.size(0) || k.size(2) != q.size(2) || v.size(2) != q.size(2) ||
      k.size(3) != q.size(3))
    check.fail(Kind::shape, "q (b, hq, t, d_k), k (b, hk, t, d_k) and v (b, hv, t, d_v)", found);
  const Sizes s{q.size(0), q.size(1), k.size(1), v.size(1), q.size(2), q.size(3), v.size(3), q.size(0)};
  if (s.hq < 1 || s.hk < 1 || s.hv < 1 || s.d_k < 1 || s.d_v < 1)
    check.fail(Kind::shape, "heads, d_k and d_v of at least 1", found);
  if (s.hv % s.hk != 0)
    check.fail(Kind::shape, "hk that divides hv", found,
               "a state belongs to a value head: repeat v for more key heads");
  if (s.hv % s.hq != 0 && s.hq % s.hv != 0)
    check.fail(Kind::shape, "hq that divides hv, or is a multiple of it", found);
  if (s.tokens >= kMost) check.fail(Kind::shape, "fewer than 2^30 tokens", found);
  if (s.batch >= kMost || s.outputs() >= kMost || s.batch * s.outputs() >= kMost)
    check.fail(Kind::shape, "fewer than 2^30 heads in all", found);
  if (s.d_k > kMostState || s.d_v > kMostState || s.d_k * s.d_v > kMostState)
    check.fail(Kind::shape, "states of at most 2^28 numbers, d_k · d_v", found);
  return s;
}

void check_starts(const Checks& check, const Tensor& starts, std::int64_t tokens) {
  check.int64(starts, "starts", "(n + 1)", starts.rank() == 1 && starts.numel() >= 1);
  std::int64_t before = 0;
  bool rising = number(starts, 0) == 0;
  for (std::int64_t i = 0; i < starts.numel(); ++i) {
    rising = rising && number(starts, i) >= before;
    before = number(starts, i);
  }
  if (!rising || before != tokens)
    check.fail(Kind::argument, "starts that begin at 0, never fall and end at t = " + std::to_string(tokens),
               std::to_string(starts.numel()) + " values that do not");
}

void check_sequences(const Checks& check, const LinearAttentionOptions& options, Sizes& s) {
  const Tensor &starts = options.starts, &lengths = options.lengths;
  if (starts.defined()) {
    if (s.batch != 1 || lengths.defined())
      check.fail(Kind::argument, "packed sequences in a batch of 1, without lengths",
                 lengths.defined() ? "both" : "batch " + std::to_string(s.batch));
    check_starts(check, starts, s.tokens);
    s.states = starts.numel() - 1;
    if (s.states >= kMost || s.states * s.hv >= kMost)
      check.fail(Kind::shape, "fewer than 2^30 states", std::to_string(s.states) + " of each head");
  }
  if (!lengths.defined()) return;
  check.int64(lengths, "lengths", "(b)", lengths.shape() == Shape{s.batch});
  for (std::int64_t b = 0; b < s.batch; ++b) {
    if (number(lengths, b) < 0 || number(lengths, b) > s.tokens)
      check.fail(Kind::argument, "lengths from 0 to t = " + std::to_string(s.tokens),
                 std::to_string(number(lengths, b)));
  }
}

}  // namespace

Sizes validate(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
               const LinearAttentionOptions& options) {
  const Checks check(op);
  require_known(op, "rule", options.rule, StateRule::delta);
  require_known(op, "heads", options.heads, HeadMap::tiled);
  Sizes s = check_inputs(check, q, k, v);
  const double size = std::fabs(options.scale.value_or(1));
  if (size != 0 && !(size >= 0x1p-100 && size <= 0x1p100))  // float32 takes 2^-127 for 0, and 2^128 for infinite
    check.fail(Kind::argument, "a finite scale of 0, or of magnitude from 2^-100 to 2^100",
               shortest_decimal(*options.scale));
  check_sequences(check, options, s);
  if (options.decay.defined()) {
    check.floating(options.decay, "decay");
    const Shape by_head{s.batch, s.hv, s.tokens};
    if (options.decay.shape() != by_head)
      check.shape(options.decay, "decay", "(b, hv, t), or (b, hv, t, d_k)", {s.batch, s.hv, s.tokens, s.d_k});
  }
  if (options.beta.defined()) {
    if (options.rule != StateRule::delta)
      check.fail(Kind::argument, "beta with the delta rule", "the plain rule", "multiply v by it");
    check.floating(options.beta, "beta");
    check.shape(options.beta, "beta", "(b, hv, t)", {s.batch, s.hv, s.tokens});
  }
  if (options.initial_state.defined()) {
    check.floating(options.initial_state, "initial_state");
    check.shape(options.initial_state, "initial_state", "(n, hv, d_k, d_v)", s.state_shape());
  }
  return s;
}

void validate_gradient(const Tensor& d_output, const Tensor& d_state, const Sizes& sizes) {
  const Checks check("linear_attention_backward");
  if (!d_output.defined()) check.fail(Kind::argument, "d_output", "a tensor that holds nothing");
  check.floating(d_output, "d_output");
  check.shape(d_output, "d_output", "(b, max(hq, hv), t, d_v)", sizes.output_shape());
  if (!d_state.defined()) return;
  check.floating(d_state, "d_state");
  check.shape(d_state, "d_state", "(n, hv, d_k, d_v)", sizes.state_shape());
}

std::vector<Sequence> sequences(const Sizes& sizes, const LinearAttentionOptions& options) {
  std::vector<Sequence> all;
  for (std::int64_t n = 0; n < sizes.states; ++n) {
    if (options.starts.defined()) {
      const std::int64_t first = number(options.starts, n);
      all.push_back({0, first, number(options.starts, n + 1) - first, n});
    } else {
      all.push_back({n, 0, options.lengths.defined() ? number(options.lengths, n) : sizes.tokens, n});
    }
  }
  return all;
}

std::int64_t head_of(HeadMap map, std::int64_t i, std::int64_t many, std::int64_t few) {
  return map == HeadMap::grouped ? i / (many / few) : i % few;
}

std::vector<Read> reads_of(const Sizes& s, HeadMap map, std::int64_t state) {
  std::vector<Read> reads;
  for (std::int64_t o = 0; o < s.outputs(); ++o) {
    if (head_of(map, o, s.outputs(), s.hv) != state) continue;
    reads.push_back({head_of(map, o, s.outputs(), s.hq), head_of(map, state, s.hv, s.hk), state, o});
  }
  return reads;
}

DType state_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

double scale_of(const LinearAttentionOptions& options, std::int64_t d_k) {
  return options.scale.value_or(1 / std::sqrt(static_cast<double>(d_k)));
}

}  // namespace attn::recurrence
