#include "distributed/cases.hpp"

#include <array>

#include "distributed/exchange.hpp"

namespace attn::test {
namespace {

using dist::Layout;
using dist::Scheme;
using dist::Transport;

Tensor own_rows(const Tensor& t, const Layout& layout, int rank) {
  return t.defined() && t.rank() >= 2 && t.size(-2) != 1 ? layout.take(t, -2, rank) : t;
}

// The ranks' results, gathered to those of the whole.
struct Found {
  AttentionResult result;
  AttentionGradient grad;
};

Found computed(Transport& transport, const Case& c, const Own& own) {
  const AttentionResult result = dist::attention(transport, own.q, own.k, own.v, own.options);
  const AttentionGradient grad = dist::attention_backward(transport, own.g, own.q, own.k, own.v, own.options, result);
  const auto whole = [&](const Layout& layout, const Tensor& rows) { return whole_rows(transport, layout, rows); };
  Found found;
  found.grad = grad;
  found.result.output = whole(c.queries, result.output), found.result.lse = whole(c.queries, result.lse);
  found.grad.q = whole(c.queries, grad.q), found.grad.k = whole(c.keys, grad.k), found.grad.v = whole(c.keys, grad.v);
  const Tensor& bias = c.in.options.mask.bias;
  if (bias.defined() && bias.rank() >= 2 && bias.size(-2) != 1) {
    Tensor all = grad.bias;
    while (all.rank() < 4) all = all.unsqueeze(0);
    found.grad.bias = whole(c.queries, all).view(bias.shape());
  }
  return found;
}

// Bits are promised of what the fused kernels compute.
bool fused(const Case& c) { return c.in.q.dtype() != DType::f64 && c.in.options.dropout < 1; }

void expect_bits(const Case& c, const Found& found) {
  const Inputs& in = c.in;
  const AttentionResult one = attention(in.q, in.k, in.v, in.options);
  EXPECT_TRUE(identical(found.result.output, one.output.contiguous())) << "output";
  EXPECT_TRUE(identical(found.result.lse, one.lse.contiguous())) << "lse";
  const AttentionGradient grad = attention_backward(c.g, in.q, in.k, in.v, in.options, one);
  EXPECT_TRUE(identical(found.grad.q, grad.q.contiguous())) << "dq";
  EXPECT_TRUE(identical(found.grad.k, grad.k.contiguous())) << "dk";
  EXPECT_TRUE(identical(found.grad.v, grad.v.contiguous())) << "dv";
}

void expect_truth(const Case& c, const Found& found) {
  const Inputs& in = c.in;
  const oracle::Problem p = oracle::problem_of(in.q, in.k, in.v, in.options);
  test::expect_truth(p, found.result), test::expect_truth(p, c.g, found.grad);
  EXPECT_TRUE(found.grad.bias.defined() || !in.options.mask.bias.defined());
  EXPECT_TRUE(found.grad.sinks.defined() || !in.options.sinks.defined());
  EXPECT_TRUE(found.grad.relative_bias.defined() || !in.options.relative_bias.table.defined());
}

std::string describe(const Case& c, Scheme scheme, int ranks) {
  std::string text = std::string(dist::name(scheme)) + " on " + std::to_string(ranks) + " ranks, " +
                     std::string(name(c.in.q.dtype())) + " " + describe(c.in) + ", queries";
  for (int r = 0; r < ranks; ++r) {
    for (const dist::Run& run : c.queries.runs(r))
      text += " " + std::to_string(run.first) + "-" + std::to_string(run.last);
    text += ";";
  }
  return text;
}

}  // namespace

Layout random_layout(std::mt19937& rng, std::int64_t tokens, int ranks) {
  if (chance(rng, 0.3)) return Layout::even(tokens, ranks);
  if (chance(rng, 0.4)) return Layout::zigzag(tokens, ranks);
  std::vector<std::int64_t> lengths;
  std::int64_t left = tokens;
  for (int r = 0; r < ranks; ++r) {
    lengths.push_back(r + 1 == ranks ? left : chance(rng, 0.2) ? 0 : pick(rng, 0, left));
    left -= lengths.back();
  }
  std::shuffle(lengths.begin(), lengths.end(), rng);
  return Layout::contiguous(lengths);
}

Case random_case(std::mt19937& rng, int ranks) {
  constexpr std::array kDTypes{DType::f32, DType::bf16, DType::f16, DType::f64};
  const DType dtype = kDTypes[static_cast<std::size_t>(pick(rng, 0, 3))];
  Case c;
  Inputs& in = c.in;
  Sizes& s = in.sizes = tile_sizes(rng);
  s.tk = std::min<std::int64_t>(s.tk, 300), s.tq = s.tq == ranks ? s.tq + 1 : s.tq;
  if (chance(rng, 0.6)) s.tk = s.tq;
  in.q = uniform(rng, {s.b, s.hq, s.tq, s.d}, dtype, -2, 2), in.k = uniform(rng, {s.b, s.hkv, s.tk, s.d}, dtype, -2, 2);
  in.v = uniform(rng, {s.b, s.hkv, s.tk, s.dv}, dtype, -2, 2), c.g = uniform(rng, {s.b, s.hq, s.tq, s.dv}, dtype);
  in.options = random_options(rng, s, dtype);
  add_options(rng, in);
  in.options.return_weights = false, in.options.weight_rows = {};
  if (in.options.mask.query_starts.defined() && s.tq == s.tk && chance(rng, 0.7))
    in.options.mask.key_starts = in.options.mask.query_starts;
  c.queries = random_layout(rng, s.tq, ranks);
  c.keys = s.tq == s.tk && chance(rng, 0.7) ? c.queries : random_layout(rng, s.tk, ranks);
  return c;
}

Own own_rows(const Case& c, const Transport& transport) {
  const int rank = transport.rank();
  Own own{c.queries.take(c.in.q, 2, rank),
          c.keys.take(c.in.k, 2, rank),
          c.keys.take(c.in.v, 2, rank),
          c.queries.take(c.g, 2, rank),
          {}};
  own.options.attention = c.in.options;
  own.options.queries = c.queries, own.options.keys = c.keys;
  AttentionOptions& o = own.options.attention;
  for (Tensor* t : {&o.mask.keep, &o.mask.bias, &o.dropout_keep}) *t = own_rows(*t, c.queries, rank);
  return own;
}

void check_case(Transport& transport, const Case& c, Scheme scheme) {
  SCOPED_TRACE(describe(c, scheme, transport.size()));
  Own own = own_rows(c, transport);
  own.options.scheme = scheme;
  own.options.most_bytes = 20000;  // gather takes some heads at a time
  Found found;
  try {
    found = computed(transport, c, own);
  } catch (const Error& error) {
    const bool is_refusal =
        std::string(error.what()).find("what " + std::string(dist::name(scheme)) + " can do") != std::string::npos;
    if (!is_refusal || scheme == Scheme::ulysses) throw;
    return;
  }
  if (transport.rank() != 0) return;
  if ((scheme == Scheme::ulysses || scheme == Scheme::gather) && fused(c)) expect_bits(c, found);
  expect_truth(c, found);
}

void check_decode(Transport& transport, std::mt19937& rng) {
  Case c = random_case(rng, transport.size());
  Inputs& in = c.in;
  in.options.mask.block_keep = {}, in.options.mask.block_query = in.options.mask.block_key = 0;
  in.options.mask.query_starts = {}, in.options.mask.key_starts = {};
  SCOPED_TRACE(describe(c, Scheme::automatic, transport.size()));
  Own own = own_rows(c, transport);
  own.options.queries = {}, own.options.attention = in.options;  // all rows of masks
  AttentionResult found;
  try {
    found = dist::decode(transport, in.q, own.k, own.v, own.options);
  } catch (const Error& error) {
    if (std::string(error.what()).find("what decode can do") == std::string::npos) throw;
    return;
  }
  test::expect_truth(oracle::problem_of(in.q, in.k, in.v, in.options), found);
}

void check_transport(Transport& transport) {
  const int ranks = transport.size(), own = transport.rank();
  transport.barrier();
  // Texts of every length, none among them.
  const std::vector<std::string> texts = transport.all_gather(std::string(static_cast<std::size_t>(own * 3), 'a'));
  for (int r = 0; r < ranks; ++r)
    EXPECT_EQ(texts[static_cast<std::size_t>(r)], std::string(static_cast<std::size_t>(r * 3), 'a'));
  // Two messages of one tag stay in order; another tag's may be received before them.
  const int next = (own + 1) % ranks, before = (own + ranks - 1) % ranks;
  std::vector<std::int64_t> sent{own * 10, own * 10 + 1, own * 10 + 2}, received(3);
  const auto bytes = [&](std::size_t i) { return std::as_bytes(std::span(&sent[i], 1)); };
  const auto room = [&](std::size_t i) { return std::as_writable_bytes(std::span(&received[i], 1)); };
  std::vector<dist::Request> requests;
  if (ranks > 1) {
    requests.push_back(transport.receive(before, room(2), 2));
    requests.push_back(transport.receive(before, room(0), 1));
    requests.push_back(transport.receive(before, room(1), 1));
    for (const std::size_t i : {0U, 1U}) requests.push_back(transport.send(next, bytes(i), 1));
    requests.push_back(transport.send(next, bytes(2), 2));
    for (dist::Request& request : requests) request.wait();
    EXPECT_EQ(received, (std::vector<std::int64_t>{before * 10, before * 10 + 1, before * 10 + 2}));
  }
  // Rank r's share is r + 1 numbers.
  std::vector<std::int64_t> shares;
  std::vector<double> all;
  for (int r = 0; r < ranks; ++r) {
    shares.push_back(r + 1);
    for (int i = 0; i <= r; ++i) all.push_back(100 * r + 10 * i + own);
  }
  std::vector<double> share(static_cast<std::size_t>(own + 1));
  transport.reduce_scatter(all, shares, share);
  for (int i = 0; i <= own; ++i)
    EXPECT_EQ(share[static_cast<std::size_t>(i)], ranks * (100 * own + 10 * i) + ranks * (ranks - 1) / 2);
  expect_error(Error::Kind::argument, {"rank", std::to_string(ranks)}, [&] { transport.send(ranks, {}, 1); });
}

}  // namespace attn::test
