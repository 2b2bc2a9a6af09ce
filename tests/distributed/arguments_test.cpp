// Sizes, counts and probabilities that no call can mean, at every public entry point: each is refused by name.
#include <gmock/gmock.h>

#include "attn/attn.hpp"
#include "attn/cut_cache.hpp"
#include "attn/distributed.hpp"
#include "attn/figure.hpp"
#include "attn/gradient_sum.hpp"
#include "attn/print.hpp"
#include "attn/reference.hpp"
#include "attn/report.hpp"
#include "attn/sequence_ranks.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

using Int = std::int64_t;

constexpr Int kMost = std::numeric_limits<Int>::max(), kLeast = std::numeric_limits<Int>::min();
const std::vector<double> kNoProbability{-0.1, 1.5, kNan, kInf, -kInf};
const std::vector<double> kNoNumber{kNan, kInf, -kInf};
const std::vector<double> kNotPositive{0.0, -1.0, kNan, kInf, -kInf};
const std::vector<double> kNegative{-1.0, kNan, kInf, -kInf};
const std::vector<Int> kNoCount{0, -1, kLeast, kMost};
const std::vector<Int> kNoLength{-1, kLeast, kMost};
const std::vector<Int> kNoIndex{-1, 9, kLeast, kMost};

// Every call of `call` with one of the values must be refused, by an Error that tells what was found.
template <class Value, class Call>
void refuses(const std::string& what, const std::vector<Value>& bad, const Call& call) {
  for (const Value value : bad) {
    std::ostringstream called;
    called << what << " = " << value;
    SCOPED_TRACE(called.str());
    try {
      call(value);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("expected"), testing::HasSubstr("found")));
    } catch (const std::bad_alloc&) {  // more than any memory
    } catch (const std::exception& error) {
      ADD_FAILURE() << "another exception: " << error.what();
    }
  }
}

// Expects that `call` refuses a config C in which one field has a bad value.
template <class C, class F, class Value, class Call>
void field(const std::string& what, F C::*member, const C& config, const std::vector<Value>& bad, const Call& call) {
  refuses(what, bad, [&](Value value) {
    C changed = config;
    changed.*member = value;
    call(changed);
  });
}

const Tensor kX = Tensor::full({1, 2, 3, 4}, 0.5);  // (b, h, t, d)

TEST(Arguments, OfTensors) {
  const Tensor x = Tensor::zeros({2, 3});
  refuses("empty", std::vector<Int>{-1, kLeast, kMost}, [](Int n) { Tensor::empty({n, 2}); });
  refuses("zeros", std::vector<Int>{-1, kLeast, kMost}, [](Int n) { Tensor::zeros({2, n}, DType::f64); });
  refuses("view", std::vector<Int>{0, -2, 4, kLeast, kMost}, [&](Int n) { x.view({n, 2}); });
  refuses("transpose", std::vector<Int>{2, -3, kLeast, kMost}, [&](Int n) { x.transpose(0, n); });
  refuses("select", std::vector<Int>{2, kLeast, kMost}, [&](Int n) { x.select(0, n); });
  refuses("slice from", std::vector<Int>{3, kLeast, kMost}, [&](Int n) { x.slice(0, n, 2); });
  refuses("slice to", std::vector<Int>{3, kLeast, kMost}, [&](Int n) { x.slice(0, 0, n); });
  refuses("unsqueeze", std::vector<Int>{4, kLeast, kMost}, [&](Int n) { x.unsqueeze(n); });
  refuses("expand", std::vector<Int>{-1, 4, kLeast, kMost}, [&](Int n) { x.expand({n, 3}); });
  refuses("at", std::vector<Int>{2, kLeast, kMost}, [&](Int n) { x.at({n, 0}); });
  refuses("tril_ones", std::vector<Int>{-1, kLeast, kMost}, [](Int n) { tril_ones(n, 2); });
  refuses("causal_keep", std::vector<Int>{-1, kLeast, kMost}, [](Int n) { causal_keep(n, 2); });
  refuses("precision", std::vector<int>{-1, 1000000}, [&](int n) { to_string(x, {.precision = n}); });
}

TEST(Arguments, OfRandomNumbers) {
  Generator rng(1);
  refuses("randint", std::vector<Int>{5, 4, kLeast}, [&](Int high) { rng.randint(5, high, {2}); });
  refuses("uniform", std::vector<double>{-1, kNan, kInf, -kInf}, [&](double high) { rng.uniform({2}, 0, high); });
  refuses("uniform", std::vector<double>{2, kNan, kInf, -kInf}, [&](double low) { rng.uniform({2}, low, 1); });
  refuses("rand", std::vector<Int>{-1, kLeast, kMost}, [&](Int n) { rng.rand({n, 2}); });
  refuses("dropout_keep", kNoProbability, [&](double p) { rng.dropout_keep({2}, p); });
  refuses("philox_keep", kNoProbability, [&](double p) { philox_keep({1, 1, 2, 2}, p, 3); });
  const auto keep = [](const PhiloxStart& start) { philox_keep({1, 1, 2, 2}, 0.5, 3, start); };
  for (Int PhiloxStart::*at : {&PhiloxStart::batch, &PhiloxStart::query, &PhiloxStart::key, &PhiloxStart::head})
    field("philox_keep's start", at, PhiloxStart{}, kNoLength, keep);
}

TEST(Arguments, OfTheOperator) {
  const auto with = [](const auto& change) {
    AttentionOptions options;
    change(options);
    attention(kX, kX, kX, options);
  };
  refuses("scale", kNoNumber, [&](double v) { with([&](AttentionOptions& o) { o.scale = v; }); });
  refuses("softcap", std::vector<double>{-1, kNan, kInf, 1e-30, 1e30},
          [&](double v) { with([&](AttentionOptions& o) { o.softcap = v; }); });
  refuses("dropout", kNoProbability,
          [&](double v) { with([&](AttentionOptions& o) { o.dropout = v, o.dropout_key = 1; }); });
  refuses("query_offset", std::vector<Int>{-1, kLeast, kMost},
          [&](Int v) { with([&](AttentionOptions& o) { o.query_offset = v; }); });
  refuses("key_offset", std::vector<Int>{-1, kLeast, kMost},
          [&](Int v) { with([&](AttentionOptions& o) { o.key_offset = v; }); });
  refuses("window", std::vector<Int>{-2, kLeast},
          [&](Int v) { with([&](AttentionOptions& o) { o.mask = Mask::window(v, 0); }); });
  refuses("window", std::vector<Int>{-2, kLeast},
          [&](Int v) { with([&](AttentionOptions& o) { o.mask = Mask::window(0, v); }); });
  refuses("key_lengths", std::vector<Int>{-1, 4, kLeast, kMost},
          [&](Int v) { with([&](AttentionOptions& o) { o.mask = Mask::lengths(integers({v})); }); });
  refuses("weight_rows", std::vector<Int>{-1, 3, kLeast, kMost}, [&](Int v) {
    with([&](AttentionOptions& o) {
      o.return_weights = true;
      o.weight_rows = integers({v});
    });
  });
  refuses("block_query", std::vector<Int>{0, -1, kLeast}, [&](Int v) {
    with([&](AttentionOptions& o) { o.mask = Mask::blocks(Tensor::ones({1, 1}, DType::boolean), v, 4); });
  });
  refuses("heads.first", std::vector<Int>{-1, kLeast, kMost}, [&](Int v) {
    with([&](AttentionOptions& o) { o.heads = {v, 4}; });
  });
  refuses("buckets", std::vector<Int>{0, -1, 3, kLeast}, [](Int v) { relative_bucket(1, v, true); });
  refuses("max_distance", std::vector<Int>{0, -1, 2, kLeast, kMost}, [](Int v) { relative_bucket(1, 8, true, v); });
}

// PyTorch returns the mean of the values there.
TEST(Arguments, AHeadSizeOfZeroIsRefused) {
  expect_error(Error::Kind::shape, {"a head_dim of at least 1"}, [] {
    const Tensor none = Tensor::zeros({1, 2, 3, 0});
    attention(none, none, kX);
  });
  EXPECT_EQ(attention(kX, kX, Tensor::zeros({1, 2, 3, 0})).output.numel(), 0);
}

TEST(Arguments, OfTheReference) {
  const Tensor x = Tensor::zeros({2, 4}), keep = Tensor::ones({2, 4}, DType::boolean);
  refuses("num_heads", std::vector<Int>{0, -1, 3, kLeast, kMost}, [&](Int v) { reference::split_heads(x, v); });
  refuses("dropout", kNoProbability, [&](double v) { reference::dropout(x, keep, v); });
  refuses("average_weights", std::vector<Int>{-1, kLeast, kMost},
          [](Int v) { reference::average_weights(v, reference::AverageBy::triangular); });
}

TEST(Arguments, OfModules) {
  Generator rng(1);
  const ModuleConfig config{.d_in = 4, .d_out = 4};
  for (const ModuleKind& kind : module_kinds()) {
    SCOPED_TRACE(kind.name);
    const auto make = [&](const ModuleConfig& c) { kind.make(c, rng); };
    if (!kind.uses.weights) continue;
    field("d_in", &ModuleConfig::d_in, config, kNoCount, make);
    field("d_out", &ModuleConfig::d_out, config, kNoCount, make);
    if (!kind.uses.linear) continue;
    field("context_length", &ModuleConfig::context_length, config, std::vector<Int>{-1, kLeast}, make);
    field("dropout", &ModuleConfig::dropout, config, kNoProbability, make);
    refuses("scale", kNoNumber, [&](double v) {
      ModuleConfig changed = config;
      changed.scale = v;
      make(changed);
    });
    if (kind.uses.heads) field("num_heads", &ModuleConfig::num_heads, config, kNoCount, make);
  }
  refuses("Linear", kNoCount, [&](Int v) { Linear(v, 2, true, rng); });
  refuses("Linear", kNoCount, [&](Int v) { Linear(2, v, true, rng); });
}

TEST(Arguments, OfBlocks) {
  const ModuleConfig config{.d_in = 8, .d_out = 8, .num_heads = 2, .kv_heads = 2, .head_dim = 4};
  Generator rng(1);
  const auto make = [&](const ModuleConfig& c) { MultiHeadAttention(c, rng); };
  field("d_in", &ModuleConfig::d_in, config, kNoCount, make);
  field("num_heads", &ModuleConfig::num_heads, config, kNoCount, make);
  field("kv_heads", &ModuleConfig::kv_heads, config, std::vector<Int>{-1, 3, kLeast, kMost}, make);
  field("head_dim", &ModuleConfig::head_dim, config, kNoLength, make);
  field("window", &ModuleConfig::window, config, std::vector<Int>{-1, kLeast}, make);
  field("softcap", &ModuleConfig::softcap, config, kNegative, make);
  const ModuleConfig normed{.d_in = 8, .d_out = 8, .num_heads = 2, .query_key_norm = QueryKeyNorm::each_head};
  field("epsilon", &ModuleConfig::epsilon, normed, kNegative, make);
  refuses("scale", kNoNumber, [&](double v) {
    ModuleConfig changed = config;
    changed.scale = v;
    make(changed);
  });
  refuses("RMSNorm", kNoCount, [](Int v) { RMSNorm{v}; });
  refuses("RMSNorm epsilon", kNegative, [](double v) { RMSNorm(4, v); });
  refuses("LayerNorm", kNoCount, [](Int v) { LayerNorm{v}; });
  refuses("LayerNorm epsilon", kNegative, [](double v) { LayerNorm(4, v); });
  refuses("FeedForward", kNoCount, [](Int v) { FeedForward({.width = v}); });
  refuses("FeedForward", kNoCount, [](Int v) { FeedForward({.width = v, .inner_width = 4}); });
  refuses("FeedForward", std::vector<Int>{-1, kLeast, kMost},
          [](Int v) { FeedForward({.width = 4, .inner_width = v}); });
  refuses("Dropout", kNoProbability, [](double v) { Dropout(v, Generator(1)); });
}

TEST(Arguments, OfLanguageModels) {
  const GPTConfig config{.vocab_size = 5, .context_length = 4, .layers = 1, .heads = 2, .width = 4};
  const auto make = [](const GPTConfig& c) {
    Generator rng(1);
    GPT(c, rng);
  };
  field("vocab_size", &GPTConfig::vocab_size, config, kNoCount, make);
  field("context_length", &GPTConfig::context_length, config, kNoCount, make);
  field("layers", &GPTConfig::layers, config, std::vector<Int>{-1, kLeast, kMost}, make);
  field("heads", &GPTConfig::heads, config, kNoCount, make);
  field("width", &GPTConfig::width, config, kNoCount, make);
  field("dropout", &GPTConfig::dropout, config, kNoProbability, make);
  field("epsilon", &GPTConfig::epsilon, config, kNegative, make);
  Generator rng(1);
  GPT model(config, rng);
  refuses("Decoder batch", kNoCount, [&](Int v) { Decoder(model, v); });
  Decoder decoder(model);
  refuses("truncate", std::vector<Int>{-1, kLeast}, [&](Int v) { decoder.truncate(0, v); });

  LanguageModelConfig other{.vocab_size = 5, .context_length = 4, .width = 4, .inner_width = 4, .heads = 2};
  other.layers = {{}}, other.ropes = {RopeConfig{.head_dim = 2}};
  using C = LanguageModelConfig;
  const auto language = [](const C& c) { LanguageModel{c}; };
  language(other);
  field("vocab_size", &C::vocab_size, other, kNoCount, language);
  field("context_length", &C::context_length, other, std::vector<Int>{0, -1, kLeast}, language);
  field("width", &C::width, other, kNoCount, language);
  field("inner_width", &C::inner_width, other, kNoCount, language);
  field("heads", &C::heads, other, kNoCount, language);
  field("kv_heads", &C::kv_heads, other, std::vector<Int>{-1, 3, kLeast, kMost}, language);
  field("head_dim", &C::head_dim, other, kNoLength, language);
  field("epsilon", &C::epsilon, other, kNegative, language);
  for (const auto member : {&C::attention_softcap, &C::logits_softcap})
    field("softcap", member, other, std::vector<double>{-1, kNan, kInf, 1e-30, 1e30}, language);
  for (const auto member : {&C::embedding_scale, &C::residual_scale, &C::logits_scale})
    field("scale", member, other, std::vector<double>{kNan, kInf, -kInf, 1e39, 1e300}, language);
  LanguageModel llama(other);
  refuses("Decoder batch", kNoCount, [&](Int v) { Decoder(llama, v); });
  Decoder reader(llama);
  const std::vector<Int> ids{1};
  refuses("item", kNoIndex, [&](Int v) { reader.read(v, ids); });
  refuses("item", kNoIndex, [&](Int v) { reader.length(v); });
  refuses("id", std::vector<Int>{-1, 5, kLeast, kMost}, [&](Int v) { reader.read(0, std::vector<Int>{v}); });
  refuses("target", std::vector<Int>{-1, 5, kLeast, kMost}, [](Int v) {
    cross_entropy(Tensor::zeros({1, 5}), integers({v}));
  });
}

TEST(Arguments, OfTraining) {
  Parameter p{"w", Tensor::zeros({2, 2}), Tensor::zeros({2, 2})};
  const auto make = [&](const AdamWConfig& c) { AdamW({&p}, c); };
  field("beta1", &AdamWConfig::beta1, {}, std::vector<double>{-0.1, 1, kNan, kInf}, make);
  field("beta2", &AdamWConfig::beta2, {}, std::vector<double>{-0.1, 1, kNan, kInf}, make);
  field("epsilon", &AdamWConfig::epsilon, {}, kNegative, make);
  field("weight_decay", &AdamWConfig::weight_decay, {}, kNegative, make);
  AdamW optimizer({&p});
  refuses("rate", kNegative, [&](double v) { optimizer.step(v); });
  refuses("grad_factor", kNoNumber, [&](double v) { optimizer.step(0.1, v); });
  refuses("limit", std::vector<double>{-1, kNan}, [](double v) { clip_factor(1, v); });
  refuses("norm", std::vector<double>{-1, -1e-300}, [](double v) { clip_factor(v, 1); });
}

TEST(Arguments, OfGeneration) {
  const Tensor logits = Tensor::zeros({5});
  const auto take = [&](const Sampling& s) { candidates(logits, s); };
  field("temperature", &Sampling::temperature, {}, kNegative, take);
  field("top_k", &Sampling::top_k, {}, std::vector<Int>{-1, kLeast}, take);
  field("top_p", &Sampling::top_p, {}, std::vector<double>{0, -0.5, 1.5, kNan, kInf}, take);
  field("min_p", &Sampling::min_p, {}, kNoProbability, take);
  field("repetition_penalty", &Sampling::repetition_penalty, {}, kNotPositive, take);
  field("tokens", &GenerateOptions::tokens, {}, std::vector<Int>{-1, kLeast},
        [](const GenerateOptions& o) { require_valid(o); });
}

TEST(Arguments, OfCaches) {
  const KVCacheConfig config{.batch = 1, .kv_heads = 2, .head_dim = 4};
  const auto make = [](const KVCacheConfig& c) { KVCache{c}; };
  field("batch", &KVCacheConfig::batch, config, kNoCount, make);
  field("kv_heads", &KVCacheConfig::kv_heads, config, kNoCount, make);
  field("head_dim", &KVCacheConfig::head_dim, config, kNoCount, make);
  field("value_dim", &KVCacheConfig::value_dim, config, kNoLength, make);
  field("page_size", &KVCacheConfig::page_size, config, kNoLength, make);
  KVCache cache(config);
  cache.append(Tensor::zeros({1, 2, 3, 4}), Tensor::zeros({1, 2, 3, 4}));
  refuses("length", kNoIndex, [&](Int v) { cache.length(v); });
  refuses("keys", kNoIndex, [&](Int v) { cache.keys(v); });
  refuses("append", kNoIndex, [&](Int v) { cache.append(v, Tensor::zeros({2, 1, 4}), Tensor::zeros({2, 1, 4})); });
  refuses("truncate", kNoIndex, [&](Int v) { cache.truncate(0, v); });
  refuses("truncate", kNoIndex, [&](Int v) { cache.truncate(v, 1); });
  refuses("forget", kNoIndex, [&](Int v) { cache.forget(0, v); });
  refuses("forget", kNoIndex, [&](Int v) { cache.forget(v, 1); });
  refuses("item", kNoIndex, [&](Int v) { attention(kX.slice(2, 0, 1), cache, v); });
}

TEST(Arguments, OfRotaryPositions) {
  const RotaryFrequencies rates{{1.f, 0.5f}};
  refuses("tokens", kNoLength, [&](Int v) { rotary_table(rates, v); });
  refuses("offset", kNoLength, [&](Int v) { rotary_table(rates, 2, v); });
  refuses("position", std::vector<Int>{-1, kLeast}, [&](Int v) { rotary_table(rates, integers({v})); });
  refuses("row", std::vector<Int>{-1, 2, kLeast, kMost},
          [&](Int v) { rotary_rows(rotary_table(rates, 2), integers({v})); });
  refuses("inv_freq", kNoNumber, [](double v) { rotary_table({{static_cast<float>(v)}}, 2); });
  refuses("attention_factor", kNoNumber, [](double v) { rotary_table({{1.f}, v}, 2); });
  const RopeConfig config{.head_dim = 4};
  const auto make = [](const RopeConfig& c) { rotary_frequencies(c, 4); };
  field("head_dim", &RopeConfig::head_dim, config, std::vector<Int>{0, -2, 3, kLeast, kMost}, make);
  field("theta", &RopeConfig::theta, config, kNotPositive, make);
  field("partial_rotary_factor", &RopeConfig::partial_rotary_factor, config,
        std::vector<double>{0, -1, 1.5, kNan, kInf}, make);
  refuses("factor", kNotPositive,
          [&](double v) { rotary_frequencies({.type = RopeType::linear, .head_dim = 4, .factor = v}, 4); });
  refuses("length", std::vector<Int>{-1, kLeast}, [&](Int v) { rotary_frequencies(config, v); });
}

TEST(Arguments, OfFigures) {
  const Tensor w = Tensor::full({2, 2}, 0.5);
  Trace trace;
  trace.record("weights", w);
  using figure::Axes, figure::SpaceOptions;
  const std::vector<figure::Series> series{{"a", {0, 1}, {1, 2}}};
  field("width", &Axes::width, {}, kNotPositive, [&](const Axes& a) { figure::line_chart(series, a); });
  field("height", &Axes::height, {}, kNotPositive, [&](const Axes& a) { figure::line_chart(series, a); });
  const std::vector<figure::Points> points{{"inputs", Tensor::of({{1, 2}, {3, 4}}), {"a", "b"}}};
  for (const auto member : {&SpaceOptions::width, &SpaceOptions::height}) {
    field("size", member, {}, kNotPositive, [&](const SpaceOptions& o) { figure::space(points, o); });
  }
  for (const auto member : {&SpaceOptions::azimuth, &SpaceOptions::elevation}) {
    field("angle", member, {}, kNoNumber, [&](const SpaceOptions& o) { figure::space(points, o); });
  }
  field("item", &ReportOptions::item, {}, kNoIndex, [&](const ReportOptions& o) { report(trace, o); });
  refuses("layer", kNoIndex, [&](Int v) { report(trace, {.layer = v}); });
  refuses("head", kNoIndex, [&](Int v) { report(trace, {.head = v}); });
}

TEST(Arguments, OfRanks) {
  using namespace distributed;
  const Layout two = Layout::even(6, 2);
  const std::vector<int> no_ranks{0, -1, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()};
  const std::vector<int> no_rank{-1, 2, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()};
  refuses("even tokens", kNoLength, [](Int v) { Layout::even(v, 2); });
  refuses("zigzag tokens", kNoLength, [](Int v) { Layout::zigzag(v, 2); });
  refuses("even ranks", no_ranks, [](int v) { Layout::even(6, v); });
  refuses("zigzag ranks", no_ranks, [](int v) { Layout::zigzag(6, v); });
  refuses("length", kNoLength, [](Int v) { Layout::contiguous(std::vector<Int>{3, v}); });
  refuses("run", kNoLength, [](Int v) { Layout({{{0, 3}}, {{3, v}}}); });
  refuses("rows", no_rank, [&](int v) { two.rows(v); });
  refuses("runs", no_rank, [&](int v) { two.runs(v); });
  refuses("take", std::vector<Int>{2, -3, kLeast, kMost}, [&](Int v) { two.take(Tensor::zeros({6, 6}), v, 0); });
  refuses("take", no_rank, [&](int v) { two.take(Tensor::zeros({6, 6}), 0, v); });
  refuses("put", std::vector<Int>{2, -3, kLeast, kMost}, [&](Int v) {
    two.put(Tensor::zeros({3, 6}), Tensor::zeros({6, 6}), v, 0);
  });
  expect_error(Error::Kind::argument, {"[run_threads]", "empty"}, [] { run_threads(2, {}); });
  Layout layout = two;
  const Layout taken = std::move(layout);
  expect_error(Error::Kind::argument, {"[layout]", "moved from"}, [&] { layout.rows(0); });  // NOLINT
  refuses("run_threads", std::vector<int>{0, -1, std::numeric_limits<int>::min()},
          [](int v) { run_threads(v, [](Transport&) {}); });
  const Problem problem{
      .batch = 1, .query_heads = 2, .key_heads = 2, .depth = 4, .value_depth = 4, .queries = two, .keys = two};
  const auto ask = [](const Problem& p) { estimate(p, {}); };
  ask(problem);
  field("batch", &Problem::batch, problem, std::vector<Int>{-1, kLeast}, ask);
  field("query_heads", &Problem::query_heads, problem, std::vector<Int>{0, -1, kLeast}, ask);
  field("key_heads", &Problem::key_heads, problem, std::vector<Int>{0, -1, 3, kLeast}, ask);
  field("depth", &Problem::depth, problem, std::vector<Int>{-1, kLeast}, ask);
  field("value_depth", &Problem::value_depth, problem, std::vector<Int>{-1, kLeast}, ask);
  for (const auto member : {&Costs::bytes_per_second, &Costs::flops_per_second}) {
    field("cost", member, {}, kNotPositive, [&](const Costs& c) { estimate(problem, {.costs = c}); });
  }
  field("latency", &Costs::latency, {}, kNegative, [&](const Costs& c) { estimate(problem, {.costs = c}); });
  field("most_bytes", &Options::most_bytes, {}, std::vector<Int>{-1, kLeast},
        [&](const Options& o) { estimate(problem, o); });
  run_threads(2, [&](Transport& ranks) {
    if (ranks.rank() != 0) return;  // each of these is refused before ranks meet
    refuses("member", no_rank, [&](int v) { subgroup(ranks, {0, v}); });
  });
}

}  // namespace
}  // namespace attn::test
