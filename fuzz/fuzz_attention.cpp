// Bytes become a problem, which the operator or a cache solves on one of the machine's units; the oracle says what is
// right.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "attention_problem.hpp"
#include "attn/attention.hpp"
#include "attn/kv_cache.hpp"
#include "kernels/processor.hpp"
#include "kernels/targets.hpp"
#include "oracle/convert.hpp"

namespace attn {

#if defined(ATTN_AMX_EMULATED)
namespace kernels {
extern const Kernels kernels_amx_emulated;
}
#endif

namespace fuzz {
namespace {

struct Unit {
  std::string name;
  const kernels::Kernels* kernels;
};

const std::vector<Unit>& units() {
  static const std::vector<Unit> all = [] {
    std::vector<Unit> list;
    for (const kernels::Target& t : kernels::targets()) {
      if (t.supported) list.push_back({std::string(t.isa), t.kernels});
    }
#if defined(ATTN_AMX_EMULATED)
    if (kernels::has_avx512bf16()) list.push_back({"amx_emulated", &kernels::kernels_amx_emulated});
#endif
    return list;
  }();
  return all;
}

std::string unit, described;  // of this input, for the message

void require(const std::string& difference) {
  if (difference.empty()) return;
  std::fprintf(stderr, "on %s: %s\n%s\n", unit.c_str(), difference.c_str(), described.c_str());
  std::abort();
}

std::string shape_of(const Tensor& t) {
  return t.defined() ? t.shape().str() + " " + std::string(name(t.dtype())) : "-";
}

std::string describe(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  const Mask& m = o.mask;
  const auto number = [](auto x) { return std::to_string(x); };
  return "q " + shape_of(q) + " k " + shape_of(k) + " v " + shape_of(v) + " causal " + number(m.is_causal) +
         (m.align == Align::bottom_right ? " bottom right" : " top left") + " window " + number(m.window_left) + "," +
         number(m.window_right) + " lengths " + shape_of(m.key_lengths) + " starts " + shape_of(m.query_starts) +
         " keep " + shape_of(m.keep) + " bias " + shape_of(m.bias) + " blocks " + shape_of(m.block_keep) + " of " +
         number(m.block_query) + "," + number(m.block_key) + " scale " + number(o.scale.value_or(-99)) + " softcap " +
         number(o.softcap) + " alibi " + shape_of(o.alibi_slopes) + " sinks " + shape_of(o.sinks) + " dropout " +
         number(o.dropout) + (o.dropout_key ? " by key" : "") + " function " + number(bool(o.score_function)) +
         " relative " + shape_of(o.relative_bias.table) + (o.relative_bias.bidirectional ? " both to " : " to ") +
         number(o.relative_bias.max_distance) + " offsets " + number(o.query_offset.given()) +
         number(o.key_offset.given()) + " weights " + number(o.return_weights) + " rows " + shape_of(o.weight_rows) +
         " precision " + std::string(name(o.precision));
}

oracle::Numbers chosen_rows(const oracle::Problem& p, const oracle::Numbers& weights, const Tensor& rows) {
  if (!rows.defined()) return weights;
  oracle::Numbers chosen;
  for (std::int64_t head = 0; head < p.batch * p.query_heads; ++head) {
    for (const double i : oracle::values(rows)) {
      const auto first = weights.begin() + (head * p.queries + static_cast<std::int64_t>(i)) * p.keys;
      chosen.insert(chosen.end(), first, first + p.keys);
    }
  }
  return chosen;
}

bool all_finite(const std::vector<double>& all) {
  return std::all_of(all.begin(), all.end(), [](double x) { return std::isfinite(x); });
}

// Finite inputs: scores of a function may be what they like.
bool is_finite(const oracle::Problem& p) {
  const auto bias = std::all_of(p.bias.values.begin(), p.bias.values.end(),
                                [](double x) { return std::isfinite(x) || (std::isinf(x) && x < 0); });
  return all_finite(p.q) && all_finite(p.k) && all_finite(p.v) && bias && !p.change;
}

void check(const AttentionResult& found, const oracle::Problem& p, const AttentionOptions& options) {
  const oracle::Result expected = oracle::attention(p);
  if (is_finite(p) && !all_finite(oracle::values(found.output))) require("finite inputs give an output that is not");
  require(oracle::difference(found.output, expected.output, p.roundoff, "output"));
  require(oracle::difference(found.lse, expected.lse, p.roundoff, "lse"));
  if (!options.return_weights) return;
  const oracle::Numbers weights = chosen_rows(p, expected.weights, options.weight_rows);
  require(oracle::difference(found.weights, weights, p.roundoff, "weights"));
}

void run_operator(Bytes& bytes, Elements& elements, const Sizes& s, DType dtype) {
  const Tensor q = scattered(bytes, elements.tensor({s.b, s.hq, s.tq, s.d}, dtype, -2, 2));
  const Tensor k = scattered(bytes, elements.tensor({s.b, s.hkv, s.tk, s.d}, dtype, -2, 2));
  const Tensor v = scattered(bytes, elements.tensor({s.b, s.hkv, s.tk, s.dv}, dtype, -2, 2));
  AttentionOptions options = options_of(bytes, elements, s, dtype);
  described = describe(q, k, v, options);
  oracle::Problem p = oracle::problem_of(q, k, v, options);
  p.only_hidden_specials = true;
  const AttentionResult forward = attention(q, k, v, options);
  check(forward, p, options);
  if (!bytes.yes()) return;

  const Tensor d_output = scattered(bytes, elements.tensor({s.b, s.hq, s.tq, s.dv}, dtype, -2, 2));
  const AttentionGradient found = bytes.yes() ? attention_backward(d_output, q, k, v, options, forward)
                                              : attention_backward(d_output, q, k, v, options);
  const oracle::Gradient expected = oracle::gradient(p, oracle::values(d_output));
  const auto compare = [&](const Tensor& t, const oracle::Numbers& numbers, const char* what) {
    require(oracle::difference(t, numbers, p.roundoff, what, oracle::Of::gradient));
  };
  compare(found.q, expected.q, "dq");
  compare(found.k, expected.k, "dk");
  compare(found.v, expected.v, "dv");
  if (options.mask.bias.defined()) compare(found.bias, expected.bias, "dbias");
  if (options.sinks.defined()) compare(found.sinks, expected.sinks, "dsinks");
  if (options.relative_bias.table.defined()) compare(found.relative_bias, expected.relative, "drelative");
}

// Grows a cache by chunks, and cuts it at places that the bytes choose. `keys` and `values` get the rows of each item.
void fill(Bytes& bytes, Elements& elements, const Sizes& s, DType dtype, KVCache& cache, std::vector<Tensor>& keys,
          std::vector<Tensor>& values) {
  const auto join = [](const Tensor& a, const Tensor& b) {
    if (!a.defined() || a.size(1) == 0) return b.to(DType::f64).clone();
    Tensor both = Tensor::empty({a.size(0), a.size(1) + b.size(1), a.size(2)}, DType::f64);
    both.slice(1, 0, a.size(1)).copy_from(a);
    both.slice(1, a.size(1), both.size(1)).copy_from(b);
    return both;
  };
  for (std::int64_t step = bytes.number(1, 6); step > 0; --step) {
    const std::int64_t tokens = bytes.number(0, s.tk), item = bytes.number(0, s.b);  // s.b: every item
    const bool every = item == s.b;
    const Shape lead = every ? Shape{s.b, s.hkv} : Shape{s.hkv};
    const auto rows = [&](std::int64_t width) {
      Shape shape = lead;
      shape.push_back(tokens), shape.push_back(width);
      return scattered(bytes, elements.tensor(shape, dtype));
    };
    const Tensor k = rows(s.d), v = rows(s.dv);
    every ? cache.append(k, v) : cache.append(item, k, v);
    for (std::int64_t b = 0; b < s.b; ++b) {
      if (!every && b != item) continue;
      auto& kept_k = keys[static_cast<std::size_t>(b)];
      auto& kept_v = values[static_cast<std::size_t>(b)];
      kept_k = join(kept_k, every ? k.select(0, b) : k), kept_v = join(kept_v, every ? v.select(0, b) : v);
      if (bytes.byte() % 8 != 7) continue;
      const std::int64_t length = elements.number(0, kept_k.size(1));
      cache.truncate(b, length);
      kept_k = kept_k.slice(1, 0, length), kept_v = kept_v.slice(1, 0, length);
    }
    if (bytes.byte() % 8 == 7) cache = cache.clone();
  }
}

// The stored elements are the appended ones, rounded; what they are instead, in double, padded to the longest item.
Tensor stored(const std::vector<Tensor>& appended, const std::vector<Tensor>& held, DType dtype, std::int64_t longest) {
  const Tensor& first = held.front();
  Tensor all =
      Tensor::zeros({static_cast<std::int64_t>(held.size()), first.size(0), longest, first.size(2)}, DType::f64);
  for (std::size_t b = 0; b < held.size(); ++b) {
    const std::int64_t length = held[b].size(1);
    all.select(0, static_cast<std::int64_t>(b)).slice(1, 0, length).copy_from(held[b]);
    if (length == 0) continue;
    const std::vector<double> was = oracle::values(appended[b]), is = oracle::values(held[b]);
    const auto width = static_cast<std::size_t>(first.size(2));
    const double roundoff = dtype == DType::i8 ? 1.001 / 254 / 16 : 0x1p-60;
    if (was.size() != is.size()) require("a cache of another length");
    for (std::size_t row = 0; row < was.size(); row += width) {
      oracle::Numbers expected;
      double most = 0;
      for (std::size_t c = 0; c < width; ++c) most = std::max(most, std::fabs(was[row + c]));
      const bool is_lost = dtype == DType::i8 && !all_finite({was.begin() + static_cast<std::ptrdiff_t>(row),
                                                              was.begin() + static_cast<std::ptrdiff_t>(row + width)});
      for (std::size_t c = 0; c < width; ++c) expected.push_back({is_lost ? std::nan("") : was[row + c], most});
      const Tensor line = Tensor::from(std::span(is).subspan(row, width), {static_cast<std::int64_t>(width)});
      require(oracle::difference(line.to(held[b].dtype()), expected, roundoff, "a cached row"));
    }
  }
  return all;
}

void run_cache(Bytes& bytes, Elements& elements, Sizes s, DType dtype) {
  s.b = std::max<std::int64_t>(s.b, 1), s.hkv = std::max<std::int64_t>(s.hkv, 1), s.hq = std::max(s.hq, s.hkv);
  s.dv = std::max<std::int64_t>(s.dv, 1);
  KVCacheConfig config{.batch = s.b, .kv_heads = s.hkv, .head_dim = s.d, .value_dim = s.dv};
  config.dtype = bytes.one_of({DType::f32, DType::bf16, DType::f16, DType::i8});
  config.page_size = bytes.one_of<std::int64_t>({0, 1, 3, 16, 64, 100});
  config.capacity = bytes.number(0, 3) * 30;
  KVCache cache(config);
  std::vector<Tensor> keys(static_cast<std::size_t>(s.b), Tensor::empty({s.hkv, 0, s.d}, DType::f64));
  std::vector<Tensor> values(static_cast<std::size_t>(s.b), Tensor::empty({s.hkv, 0, s.dv}, DType::f64));
  fill(bytes, elements, s, dtype, cache, keys, values);

  std::vector<Tensor> held_keys, held_values;
  for (std::int64_t b = 0; b < s.b; ++b) held_keys.push_back(cache.keys(b)), held_values.push_back(cache.values(b));
  s.tk = cache.max_length();
  s.tq = std::min<std::int64_t>(s.tq, 20);
  if (dtype == DType::f64) dtype = DType::f32;
  const Tensor q = scattered(bytes, elements.tensor({s.b, s.hq, s.tq, s.d}, dtype, -2, 2));
  AttentionOptions options = options_of(bytes, elements, s, dtype);
  options.mask.key_lengths = {}, options.mask.query_starts = {}, options.mask.key_starts = {};
  described = "cache of " + std::string(name(config.dtype)) + ", pages of " + std::to_string(config.page_size) + ", ";
  described += describe(q, keys.front(), values.front(), options);
  const Tensor k = stored(keys, held_keys, config.dtype, s.tk), v = stored(values, held_values, config.dtype, s.tk);
  const AttentionResult found = attention(q, cache, options);
  AttentionOptions own = options;
  own.mask.key_lengths = cache.lengths();
  oracle::Problem p = oracle::problem_of(q, k, v, own);
  p.only_hidden_specials = true, p.fixed_point = config.dtype == DType::i8;
  oracle::set_roundoff(p, dtype == config.dtype ? dtype : DType::f32, options.precision);
  check(found, p, options);
}

}  // namespace
}  // namespace fuzz
}  // namespace attn

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attn;
  using namespace attn::fuzz;
  Bytes bytes(data, size);
  const Unit& chosen = units()[static_cast<std::size_t>(bytes.byte()) % units().size()];
  unit = chosen.name;
  kernels::use(chosen.kernels);
  const std::uint8_t kind = bytes.byte();
  const DType dtype = bytes.one_of({DType::f32, DType::bf16, DType::f16, DType::f64});
  const Sizes sizes = sizes_of(bytes);
  Elements elements(bytes);
  (kind & 3) == 0 ? run_cache(bytes, elements, sizes, dtype) : run_operator(bytes, elements, sizes, dtype);
  return 0;
}
