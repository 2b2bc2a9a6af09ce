// Ranks that are threads.
#include <atomic>
#include <map>

#include "attention/fields.hpp"
#include "distributed/cases.hpp"
#include "distributed/errors.hpp"
#include "distributed/exchange.hpp"
#include "distributed/on_ranks.hpp"
#include "kernels/use.hpp"

namespace attn::test {
namespace {

using dist::Layout;
using dist::Scheme;
using dist::Transport;

TEST(Transport, OfThreadsDeliversWhatIsSent) {
  for (const int ranks : kRanks) dist::run_threads(ranks, check_transport);
}

TEST(Transport, ARankThatEndsEndsTheOthers) {
  const auto body = [](Transport& transport) {
    if (transport.rank() == 2) throw Error(Error::Kind::file, "rank", "a file", "none");
    transport.barrier();
  };
  expect_error(Error::Kind::file, {"a file"}, [&] { dist::run_threads(4, body); });
}

TEST(Layouts, HoldEveryPositionOnce) {
  const Layout zigzag = Layout::zigzag(21, 2);
  EXPECT_EQ(zigzag.runs(0), (std::vector<dist::Run>{{0, 6}, {16, 21}}));
  EXPECT_EQ(zigzag.runs(1), (std::vector<dist::Run>{{6, 11}, {11, 16}}));
  for_seeds(50, [](std::mt19937& rng) {
    const int ranks = static_cast<int>(pick(rng, 1, 9));
    const std::int64_t tokens = pick(rng, 0, 40);
    const Layout layout = random_layout(rng, tokens, ranks);
    const Tensor whole = uniform(rng, {2, tokens, 3}), again = Tensor::zeros({2, tokens, 3}, DType::f64);
    std::int64_t rows = 0;
    for (int r = 0; r < ranks; ++r) rows += layout.rows(r), layout.put(layout.take(whole, 1, r), again, 1, r);
    EXPECT_EQ(rows, tokens);
    EXPECT_TRUE(identical(whole, again));
  });
  expect_error(Error::Kind::argument, {"every position once", "5"}, [] { Layout({{{0, 4}}, {{5, 6}}}); });
  expect_error(Error::Kind::argument, {"every position once"}, [] { Layout({{{0, 4}}, {{3, 6}}}); });
  expect_error(Error::Kind::argument, {"at least one rank"}, [] { Layout::even(4, 0); });
}

TEST(Distributed, RingIsTheWhole) {
  on_ranks(12, [](std::mt19937& rng, Transport& t) { check_case(t, random_case(rng, t.size()), Scheme::ring); });
}

TEST(Distributed, GatherHasTheBitsOfOneProcess) {
  on_ranks(12, [](std::mt19937& rng, Transport& t) { check_case(t, random_case(rng, t.size()), Scheme::gather); });
}

TEST(Distributed, UlyssesHasTheBitsOfOneProcess) {
  on_ranks(12, [](std::mt19937& rng, Transport& t) { check_case(t, random_case(rng, t.size()), Scheme::ulysses); });
}

// A case in seven is packed, and some of those are refused: these are not.
Case packed_case(std::mt19937& rng, int ranks) {
  while (true) {
    Case c = random_case(rng, ranks);
    const AttentionOptions& o = c.in.options;
    const Mask& mask = o.mask;
    if (!mask.query_starts.defined() || mask.block_keep.defined()) continue;
    const bool by_position =
        mask.is_causal || mask.has_window() || o.alibi_slopes.defined() || o.relative_bias.table.defined();
    if (!by_position || identical(mask.query_starts, mask.key_starts)) return c;
  }
}

TEST(Distributed, PackedSequencesAreThoseOfTheWhole) {
  on_ranks(5, [](std::mt19937& rng, Transport& t) {
    const Case c = packed_case(rng, t.size());
    for (const Scheme scheme : {Scheme::ring, Scheme::gather, Scheme::ulysses}) check_case(t, c, scheme);
  });
}

TEST(Distributed, DecodeIsTheWhole) {
  on_ranks(12, [](std::mt19937& rng, Transport& t) { check_decode(t, rng); });
}

Case exact_case(std::mt19937& rng, std::int64_t queries) {
  Case c;
  c.in.sizes = {1, 1, 1, queries, 1024, 64, 32};
  c.in.q = uniform(rng, {1, 1, queries, 64}, DType::f32, -2, 2);
  c.in.k = uniform(rng, {1, 1, 1024, 64}, DType::f32, -2, 2);
  c.in.v = uniform(rng, {1, 1, 1024, 32}, DType::f32), c.g = uniform(rng, {1, 1, queries, 32}, DType::f32);
  c.in.options.mask.is_causal = true, c.in.options.mask.align = Align::bottom_right;
  return c;
}

struct Whole {
  AttentionResult result;
  AttentionGradient grad;
};

Whole by_one_process(const Case& c) {
  const AttentionResult result = attention(c.in.q, c.in.k, c.in.v, c.in.options);
  return {result, attention_backward(c.g, c.in.q, c.in.k, c.in.v, c.in.options, result)};
}

// By the kernels of pieces of fewer than 128 queries. AMX does not split these in parts of bf16, whose sums are nearer
// to the truth than float32's.
Whole by_kernels_of_small_pieces(const Case& c) {
  std::optional<kernels::UseKernels> floats;
  if (std::string_view(kernels::active().isa) == "amx") floats.emplace(*kernels::unit_named("avx512"));
  return by_one_process(c);
}

// Compares norms of errors over some problems, of results that are rounded alike: the error is at most one process's,
// whatever the number of ranks. In a single problem a query's gradient may be a few thousandths worse, as often as
// better.
TEST(Distributed, SlowRingIsAsNearToTheTruthAsOneProcess) {
  std::map<std::string, Errors> all;
  for (unsigned seed = 1; seed <= 4; ++seed) {
    std::mt19937 rng(seed);
    Case c = exact_case(rng, 1024);
    const oracle::Problem p = oracle::problem_of(c.in.q, c.in.k, c.in.v, c.in.options);
    const oracle::Result want = oracle::attention(p);
    const oracle::Gradient d_want = oracle::gradient(p, oracle::values(c.g));
    const Whole usual = by_one_process(c), of_small_pieces = by_kernels_of_small_pieces(c);
    for (const auto& [name, layout] : {std::pair("2, zigzag", Layout::zigzag(1024, 2)),
                                       {"2", Layout::even(1024, 2)},
                                       {"4, zigzag", Layout::zigzag(1024, 4)},
                                       {"8", Layout::even(1024, 8)},
                                       {"8, zigzag", Layout::zigzag(1024, 8)}}) {
      const Whole& one = name == std::string_view("8, zigzag") ? of_small_pieces : usual;
      c.queries = c.keys = layout;
      dist::run_threads(layout.ranks(), [&, on = " on " + std::string(name)](Transport& t) {
        Own own = own_rows(c, t);
        own.options.scheme = Scheme::ring;
        const AttentionResult found = dist::attention(t, own.q, own.k, own.v, own.options);
        const AttentionGradient grad = dist::attention_backward(t, own.g, own.q, own.k, own.v, own.options, found);
        const auto add = [&](const char* what, const Tensor& rows, const Tensor& whole,
                             const oracle::Numbers& numbers) {
          const Tensor found_whole = whole_rows(t, c.queries, rows);
          if (t.rank() == 0) all[what + on].add(whole, found_whole, numbers);
        };
        add("output", found.output, one.result.output, want.output), add("lse", found.lse, one.result.lse, want.lse);
        add("dq", grad.q, one.grad.q, d_want.q), add("dk", grad.k, one.grad.k, d_want.k);
        add("dv", grad.v, one.grad.v, d_want.v);
      });
    }
  }
  for (const auto& [what, errors] : all) EXPECT_LE(errors.ranks, errors.one) << what;
}

TEST(Distributed, SlowDecodeIsAsNearToTheTruthAsOneProcess) {
  for (const int ranks : {2, 4, 8}) {
    Errors output, lse;
    for (unsigned seed = 1; seed <= 4; ++seed) {
      std::mt19937 rng(seed);
      const Case c = exact_case(rng, 64);
      const Layout layout = Layout::even(1024, ranks);
      const oracle::Result want = oracle::attention(oracle::problem_of(c.in.q, c.in.k, c.in.v, c.in.options));
      const AttentionResult one = attention(c.in.q, c.in.k, c.in.v, c.in.options);
      dist::run_threads(ranks, [&](Transport& t) {
        const dist::Options options{.attention = c.in.options};
        const AttentionResult found =
            dist::decode(t, c.in.q, layout.take(c.in.k, 2, t.rank()), layout.take(c.in.v, 2, t.rank()), options);
        if (t.rank() != 0) return;
        output.add(one.output, found.output, want.output), lse.add(one.lse, found.lse, want.lse);
      });
    }
    EXPECT_LE(output.ranks, output.one) << "on " << ranks;
    EXPECT_LE(lse.ranks, lse.one) << "on " << ranks;
  }
}

// Counts what is sent.
class Counting : public Transport {
 public:
  explicit Counting(Transport& of) : of_(of) {}
  int rank() const noexcept override { return of_.rank(); }
  int size() const noexcept override { return of_.size(); }
  dist::Request send(int to, dist::Bytes message, int tag) override {
    if (tag != 0) bytes += message.size(), ++messages;
    return of_.send(to, message, tag);
  }
  dist::Request receive(int from, dist::Room message, int tag) override { return of_.receive(from, message, tag); }

  std::size_t bytes = 0, messages = 0;

 private:
  Transport& of_;
};

// Ranks of 8 rows each, f32, 2 heads of 4 + 3 numbers: a row of keys and values is 56 bytes.
void expect_sent(const Mask& mask, const std::vector<std::size_t>& rows, const std::vector<std::size_t>& messages) {
  dist::run_threads(4, [&](Transport& t) {
    Counting counting(t);
    std::mt19937 rng(static_cast<unsigned>(t.rank()));
    const Tensor q = uniform(rng, {1, 2, 8, 4}, DType::f32), v = uniform(rng, {1, 2, 8, 3}, DType::f32);
    dist::Options options;
    options.attention.mask = mask, options.scheme = Scheme::ring;
    dist::attention(counting, q, q, v, options);
    const auto own = static_cast<std::size_t>(t.rank());
    EXPECT_EQ(counting.bytes, rows[own] * 56) << "rank " << own;
    EXPECT_EQ(counting.messages, messages[own]) << "rank " << own;
  });
}

TEST(Distributed, RingSendsNoRowThatNoQuerySees) {
  expect_sent(Mask::none(), {24, 24, 24, 24}, {3, 3, 3, 3});
  expect_sent(Mask::causal(), {24, 16, 8, 0}, {3, 2, 1, 0});                      // to later ranks
  expect_sent(Mask::causal() & Mask::window(5, -1), {5, 5, 5, 0}, {1, 1, 1, 0});  // the last rows, to the next
  Tensor starts = Tensor::zeros({3}, DType::i64);
  starts.set({1}, 20), starts.set({2}, 32);  // rank 2 has rows of both sequences
  expect_sent(Mask::sequences(starts, starts), {16, 16, 4 + 4 + 4, 8}, {2, 2, 3, 1});
}

TEST(Distributed, RanksThatDisagreeAreAllTold) {
  const auto refuse = [](const std::vector<std::string>& parts,
                         const std::function<void(Transport&, dist::Options&)>& change) {
    std::atomic<int> told = 0;
    dist::run_threads(3, [&](Transport& t) {
      std::mt19937 rng(1);
      dist::Options options;
      options.scheme = Scheme::ring;
      change(t, options);
      const Tensor x = uniform(rng, {1, 2, 5, 4}, DType::f32);
      expect_error(Error::Kind::argument, parts, [&] { dist::attention(t, x, x, x, options); });
      ++told;
    });
    EXPECT_EQ(told, 3);
  };
  refuse({"the same call on every rank", "causal 0", "causal 1", "ranks 0 and 1"},
         [](Transport& t, dist::Options& o) { o.attention.mask.is_causal = t.rank() == 1; });
  refuse({"fit on every rank", "rank 2", "softcap"},
         [](Transport& t, dist::Options& o) { o.attention.softcap = t.rank() == 2 ? -1 : 0; });
  refuse({"rank 1", "layout's 7 rows of queries", "found 5"}, [](Transport& t, dist::Options& o) {
    if (t.rank() == 1) o.queries = Layout::even(21, 3);
  });
  refuse({"what ring can do", "block_keep"}, [](Transport&, dist::Options& o) {
    o.attention.mask = Mask::blocks(Tensor::ones({15, 15}, DType::boolean), 1, 1);
  });
  refuse({"no offsets"}, [](Transport&, dist::Options& o) { o.attention.query_offset = 3; });
}

// Another value of an option, of any type.
struct Another {
  void operator()(bool& flag) const { flag = !flag; }
  void operator()(std::int64_t& number) const { number += 2; }
  void operator()(double& number) const { number += 0.5; }
  void operator()(Align& align) const { align = Align::bottom_right; }
  void operator()(Precision& precision) const { precision = Precision::medium; }
  void operator()(std::optional<double>& number) const { number = 0.25; }
  void operator()(std::optional<std::uint64_t>& number) const { number = 7; }
  void operator()(std::optional<DType>& dtype) const { dtype = DType::f32; }
  void operator()(ScoreFunction& function) const {
    function.forward = [](const ScoreTile*, void*) {};
  }
  void operator()(Offset& offset) const { offset = 1; }
  void operator()(HeadRange& heads) const { heads = {2, 8}; }
  void operator()(Tensor& t) const { t = Tensor::ones({1, 1, 1, 1}, DType::f32); }
};

// Whatever one rank alone is given is refused on all: no field of the options is forgotten.
TEST(Distributed, EachOptionOfOneRankAloneIsRefused) {
  AttentionOptions listed;
  std::vector<std::string> fields;
  visit_fields(listed, [&](const char* name, FieldKind, const auto&) { fields.emplace_back(name); });
  for (const std::string& field : fields) {
    SCOPED_TRACE(field);
    std::atomic<int> told = 0;
    dist::run_threads(2, [&](Transport& t) {
      dist::Options options;
      visit_fields(options.attention, [&](const char* name, FieldKind, auto& value) {
        if (t.rank() == 1 && name == field) Another{}(value);
      });
      const Tensor x = Tensor::ones({1, 2, 5, 4}, DType::f32);
      EXPECT_THROW(dist::attention(t, x, x, x, options), Error);
      ++told;
    });
    EXPECT_EQ(told, 2);
  }
}

TEST(Distributed, TheCostModelChoosesByBytesAndHeads) {
  dist::Problem p{1, 8, 8, 64, 64, DType::f32, Layout::zigzag(1 << 16, 4), Layout::zigzag(1 << 16, 4)};
  dist::Options options;
  options.attention.mask.is_causal = true;
  const dist::Estimate ring = dist::estimate(p, {.attention = options.attention, .scheme = Scheme::ring});
  EXPECT_EQ(ring.bytes, 3.0 * (1 << 14) * 8 * 128 * 4);  // all of its rows to three others
  EXPECT_NEAR(ring.flops, 0.25 * 4.0 * 64 * 8 * 0.5 * 65536.0 * 65536.0,
              0.01 * ring.flops);  // a quarter of the triangle
  // On a slow network few bytes count; on a fast one all are hidden, and messages count.
  options.costs = {.bytes_per_second = 1e6, .latency = 1e-5, .flops_per_second = 1e12};
  EXPECT_EQ(dist::estimate(p, options).scheme, Scheme::ulysses);
  p.key_heads = p.query_heads = 1;  // which one rank would compute
  options.costs = {.bytes_per_second = 1e10, .latency = 1e-5, .flops_per_second = 1e10};
  EXPECT_EQ(dist::estimate(p, options).scheme, Scheme::ring);
  EXPECT_NE(dist::estimate(p, options).reason.find("gather"), std::string::npos);
  options.attention.mask.block_keep = Tensor::ones({1, 1, 1, 1}, DType::boolean);
  EXPECT_EQ(dist::estimate(p, options).scheme, Scheme::ulysses);  // the only one that can
}

// docs/distributed.md: the seconds of a network that costs nothing are those of the products, and of products that cost
// nothing those of the bytes and messages. The last rank of a causal text that is cut in order is the busiest in all.
TEST(Distributed, SecondsAreThoseOfProductsOrOfBytesAndMessages) {
  const Layout even = Layout::even(1 << 12, 4), zigzag = Layout::zigzag(1 << 12, 4);
  for (const Layout& layout : {even, zigzag}) {
    const dist::Problem p{1, 8, 8, 64, 64, DType::f32, layout, layout};
    for (const Scheme scheme : {Scheme::ring, Scheme::gather, Scheme::ulysses}) {
      dist::Options options{.scheme = scheme};
      options.attention.mask.is_causal = true;
      options.costs = {.bytes_per_second = 1e300, .latency = 0, .flops_per_second = 1e9};
      const dist::Estimate computing = dist::estimate(p, options);
      EXPECT_NEAR(computing.seconds, computing.flops / 1e9, 1e-9 * computing.seconds) << dist::name(scheme);
      options.costs = {.bytes_per_second = 1e6, .latency = 0.125, .flops_per_second = 1e300};
      const dist::Estimate sending = dist::estimate(p, options);
      EXPECT_NEAR(sending.seconds, sending.bytes / 1e6 + 0.125 * sending.messages, 1e-9 * sending.seconds)
          << dist::name(scheme);
      EXPECT_GT(sending.messages, 0);
    }
  }
}

}  // namespace
}  // namespace attn::test
