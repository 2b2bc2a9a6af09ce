#include "bench/work.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string_view>
#include <vector>

#include "attention/composed.hpp"
#include "attn/error.hpp"
#include "attn/kv_cache.hpp"
#include "attn/modules.hpp"
#include "attn/reference.hpp"
#include "bench/masks.hpp"
#include "common/format.hpp"
#include "common/inputs.hpp"

namespace attn::tool {
namespace {

constexpr double kBackwardFactor = 2.5;  // five products of the forward pass's two

using Make = Work (*)(const Row&, const std::vector<Extent>&, BenchInputs&);

double product_of(std::initializer_list<std::int64_t> sizes) {
  double product = 1;
  for (const std::int64_t size : sizes) product *= static_cast<double>(size);
  return product;
}

// The products' rate is compared with this one: with float32's for three products of bf16 parts, too.
Bound products_of(const Row& row) {
  return row.dtype == "bf16" || row.precision == "medium" ? Bound::bf16 : Bound::f32;
}

// ---- attention: b,h,t,d ---------------------------------------------------------------

AttentionSizes attention_sizes(const std::vector<Extent>& e) {
  return {e[0].first, e[1].first, e[1].second, e[2].first, e[2].second, e[3].first, e[3].second};
}

struct Operands {
  Tensor q, k, v, d_output;
  AttentionOptions options;
};

AttentionOptions options_of(const Row& row, const AttentionSizes& s, BenchInputs& inputs) {
  AttentionOptions options = mask_options(row.mask, s, inputs);
  options.precision = parse_precision(row.precision);
  return options;
}

Operands operands(const Row& row, const AttentionSizes& s, BenchInputs& inputs) {
  const DType dtype = parse_dtype(row.dtype);
  return {inputs.normal("q", {s.b, s.hq, s.tq, s.d}, dtype), inputs.normal("k", {s.b, s.hkv, s.tk, s.d}, dtype),
          inputs.normal("v", {s.b, s.hkv, s.tk, s.dv}, dtype),
          inputs.normal("d_output", {s.b, s.hq, s.tq, s.dv}, dtype), options_of(row, s, inputs)};
}

void plain_forward(const Operands& in) {
  composed_attention(in.q, in.k, in.v, validate(in.q, in.k, in.v, in.options), in.options, nullptr);
}

void plain_backward(const Operands& in) {
  composed_attention_backward(in.d_output, in.q, in.k, in.v, validate(in.q, in.k, in.v, in.options), in.options);
}

// The reference holds the scores of several steps at once.
bool fits_scores(const AttentionSizes& s) {
  constexpr double steps = 12;
  return steps * product_of({s.b, s.hq, s.tq, s.tk, sizeof(float)}) < machine_memory() / 2;
}

template <bool forward, bool backward>
Work attention_work(const Row& row, const std::vector<Extent>& extents, BenchInputs& inputs) {
  const AttentionSizes s = attention_sizes(extents);
  const Operands in = operands(row, s, inputs);
  const double all = 2 * product_of({s.b, s.hq, s.tq, s.tk, s.d + s.dv});
  const double passes = (forward ? 1 : 0) + (backward ? kBackwardFactor : 0);
  Work work;
  work.operations = all * passes * seen_share(in.options, s);
  work.bound = products_of(row);
  const AttentionResult known = forward ? AttentionResult{} : attention(in.q, in.k, in.v, in.options);
  work.run = [in, known] {
    const AttentionResult result = forward ? attention(in.q, in.k, in.v, in.options) : known;
    if (backward) attention_backward(in.d_output, in.q, in.k, in.v, in.options, result);
  };
  work.plain_operations = all * passes;
  if (!fits_scores(s)) return work;
  work.plain = [in] {
    if (forward) plain_forward(in);
    if (backward) plain_backward(in);
  };
  return work;
}

// ---- decode: few queries against a cache that comes from memory -----------------------

double last_level_cache() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  if (const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE); bytes > 0) return static_cast<double>(bytes);
#endif
  return 32e6;
}

// A model has other layers' caches between two visits to one: as many copies take turns as make each visit cold.
int cold_copies(double bytes) {
  return static_cast<int>(std::clamp(std::ceil(3 * last_level_cache() / bytes), 1.0, 16.0));
}

Work decode(const Row& row, const std::vector<Extent>& extents, BenchInputs& inputs) {
  const AttentionSizes s = attention_sizes(extents);
  Work work = attention_work<true, false>(row, extents, inputs);
  const auto size = static_cast<std::int64_t>(size_of(parse_dtype(row.dtype)));
  work.bound = Bound::read;
  work.bytes = product_of({s.b, s.hkv, s.tk, s.d + s.dv, size});
  auto caches = std::make_shared<std::vector<Operands>>();
  for (int i = 0; i < cold_copies(work.bytes); ++i) {
    Operands in = operands(row, s, inputs);
    in.k = inputs.normal(formatted("k{}", i), in.k.shape(), in.k.dtype());
    in.v = inputs.normal(formatted("v{}", i), in.v.shape(), in.v.dtype());
    caches->push_back(in);
  }
  work.run = [caches, next = std::size_t{0}]() mutable {
    const Operands& in = (*caches)[next++ % caches->size()];
    attention(in.q, in.k, in.v, in.options);
  };
  return work;
}

// The same against a KVCache, whole or in pages; queries of an int8 cache are bfloat16.
template <std::int64_t page_size>
Work cache_work(const Row& row, const std::vector<Extent>& extents, BenchInputs& inputs) {
  const AttentionSizes s = attention_sizes(extents);
  const DType stored = parse_dtype(row.dtype), dtype = stored == DType::i8 ? DType::bf16 : stored;
  const KVCacheConfig config{.batch = s.b,
                             .kv_heads = s.hkv,
                             .head_dim = s.d,
                             .value_dim = s.dv,
                             .dtype = stored,
                             .page_size = page_size,
                             .capacity = s.tk};
  const auto row_bytes = static_cast<std::int64_t>(size_of(stored)) * (s.d + s.dv) + (stored == DType::i8 ? 8 : 0);
  const AttentionOptions options = mask_options(row.mask, s, inputs);
  Work work;
  work.operations = 2 * product_of({s.b, s.hq, s.tq, s.tk, s.d + s.dv}) * seen_share(options, s);
  work.bound = Bound::read;
  work.bytes = product_of({s.b, s.hkv, s.tk, row_bytes});
  auto caches = std::make_shared<std::vector<KVCache>>();
  for (int i = 0; i < cold_copies(work.bytes); ++i) {
    caches->emplace_back(config);
    caches->back().append(inputs.normal("k", {s.b, s.hkv, s.tk, s.d}, dtype),
                          inputs.normal("v", {s.b, s.hkv, s.tk, s.dv}, dtype));
  }
  work.run = [caches, q = inputs.normal("q", {s.b, s.hq, s.tq, s.d}, dtype), options, next = std::size_t{0}]() mutable {
    attention(q, (*caches)[next++ % caches->size()], options);
  };
  return work;
}

// ---- linear: rows,d_in,d_out ----------------------------------------------------------

template <bool training>
Work linear_work(const Row& row, const std::vector<Extent>& e, BenchInputs& inputs) {
  const std::int64_t rows = e[0].first, d_in = e[1].first, d_out = e[2].first;
  const DType dtype = parse_dtype(row.dtype);
  const bool has_bias = row.mask != "no-bias";
  Generator rng(1);
  const auto layer = std::make_shared<Linear>(d_in, d_out, has_bias, rng);
  layer->precision = parse_precision(row.precision);
  for (Parameter* p : layer->parameters()) p->value = p->value.to(dtype);
  const Tensor x = inputs.normal("x", {rows, d_in}, dtype), dy = inputs.normal("dy", {rows, d_out}, dtype);
  Work work;
  work.bound = products_of(row);
  work.operations = 2 * product_of({rows, d_in, d_out}) * (training ? 3 : 1);
  work.run = [=] {
    layer->forward(x);
    if (!training) return;
    layer->zero_grad();
    layer->backward(dy, x);
  };
  work.plain_operations = work.operations;
  work.plain = [=] {
    reference::project(x, layer->weight.value, layer->bias.value);
    if (training) reference::project_backward(dy, x, layer->weight.value, has_bias);
  };
  return work;
}

// ---- module: MultiHeadAttention with its projections, b,t,d,heads ----------------------

template <bool training>
Work module_work(const Row& row, const std::vector<Extent>& e, BenchInputs& inputs) {
  const std::int64_t b = e[0].first, t = e[1].first, d = e[2].first, heads = e[3].first;
  const bool causal = row.mask == "causal";
  ModuleConfig config{.d_in = d, .d_out = d, .context_length = t, .num_heads = heads, .causal = causal};
  config.precision = parse_precision(row.precision);
  Generator rng(1);
  const auto module = std::make_shared<MultiHeadAttention>(config, rng);
  module->train(training);
  const Tensor x = inputs.normal("x", {b, t, d}, DType::f32), dz = inputs.normal("dz", {b, t, d}, DType::f32);
  const double projections = 8 * product_of({b, t, d, d}), scores = 4 * product_of({b, t, t, d}) * (causal ? 0.5 : 1);
  Work work;
  work.bound = products_of(row);
  work.operations = training ? 3 * projections + (1 + kBackwardFactor) * scores : projections + scores;
  work.run = [=] {
    module->forward(x);
    if (!training) return;
    module->zero_grad();
    module->backward(dz);
  };
  work.plain_operations = work.operations;
  if (!training && fits_scores({b, heads, heads, t, t})) {
    work.plain = [=] {
      Trace steps;  // recording takes the reference's way
      module->forward(x, &steps);
    };
  }
  return work;
}

// ---- all ops --------------------------------------------------------------------------

enum class Kind { attention, cache, linear, module };

struct Op {
  std::string_view name;
  Kind kind;
  Make make;
};

constexpr std::array kOps{
    Op{"forward", Kind::attention, attention_work<true, false>},
    Op{"backward", Kind::attention, attention_work<false, true>},
    Op{"training", Kind::attention, attention_work<true, true>},
    Op{"decode", Kind::attention, decode},
    Op{"cache", Kind::cache, cache_work<0>},
    Op{"cache-paged", Kind::cache, cache_work<64>},  // tokens a page
    Op{"linear", Kind::linear, linear_work<false>},
    Op{"linear-training", Kind::linear, linear_work<true>},
    Op{"module", Kind::module, module_work<false>},
    Op{"module-training", Kind::module, module_work<true>},
};

[[noreturn]] void refuse_row(const std::string& what, const std::string& expected, const std::string& found) {
  throw Error(Error::Kind::data, what, expected, found);
}

const Op& find_op(const Row& row) {
  const auto* op = std::find_if(kOps.begin(), kOps.end(), [&](const Op& o) { return o.name == row.op; });
  if (op != kOps.end()) return *op;
  std::vector<std::string> names;
  for (const Op& o : kOps) names.emplace_back(o.name);
  refuse_row("op", formatted("one of {}", joined(names, ", ")), row.op);
}

void check_attention(const Row& row, const std::vector<Extent>& e) {
  if (e.size() != 4 || e[0].first != e[0].second) refuse_row("shape", "b,h,t,d", row.shape);
  if (e[1].first % e[1].second != 0) refuse_row("shape", "query heads that are a multiple of key heads", row.shape);
  BenchInputs inputs;
  const Tensor one = inputs.normal("one", {1, 1, 1, 1}, DType::f32);
  attention(one, one, one, mask_options(row.mask, {}, inputs));  // which refuses what a mask cannot be
}

void check_single(const Row& row, const std::vector<Extent>& e, std::size_t places, const char* form) {
  const bool single = std::all_of(e.begin(), e.end(), [](const Extent& x) { return x.first == x.second; });
  if (e.size() != places || !single) refuse_row("shape", form, row.shape);
}

}  // namespace

void check_row(const Row& row) {
  const Op& op = find_op(row);
  const auto extents = parse_shape(row.shape);
  parse_dtype(row.dtype);
  BenchInputs().use(row.numbers);
  const bool highest = parse_precision(row.precision) == Precision::highest;
  if (op.kind == Kind::cache) {
    if (!highest) refuse_row("precision", "highest", row.precision);
    if (row.mask.find("lengths") != std::string::npos)
      refuse_row("mask", "none of lengths: a cache has its own", row.mask);
    return check_attention(row, extents);
  }
  if (row.dtype == "i8") refuse_row("dtype", "i8 with cache and cache-paged only", row.dtype);
  if (op.kind == Kind::attention) return check_attention(row, extents);
  if (op.kind == Kind::linear) check_single(row, extents, 3, "rows,d_in,d_out");
  if (op.kind == Kind::module) {
    check_single(row, extents, 4, "b,t,d,heads");
    if (row.dtype != "f32") refuse_row("dtype", "f32", row.dtype);
    if (extents[2].first % extents[3].first != 0) refuse_row("shape", "d that is a multiple of heads", row.shape);
  }
  const char* other = op.kind == Kind::module ? "causal" : "no-bias";
  if (row.mask != "none" && row.mask != other) refuse_row("mask", formatted("none or {}", other), row.mask);
}

Work make_work(const Row& row, BenchInputs& inputs) {
  inputs.use(row.numbers);
  return find_op(row).make(row, parse_shape(row.shape), inputs);
}

}  // namespace attn::tool
