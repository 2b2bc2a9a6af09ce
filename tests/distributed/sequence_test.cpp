// Models whose sequences are cut among ranks: the losses and gradients of one process, to some roundings.
#include <numeric>

#include "attn/gpt.hpp"
#include "attn/gradient_sum.hpp"
#include "attn/language_model.hpp"
#include "attn/sequence_ranks.hpp"
#include "core/threads.hpp"
#include "distributed/cases.hpp"

namespace attn::test {
namespace {

using dist::Layout;
using dist::Scheme;
using dist::SequenceRanks;
using dist::Transport;

constexpr std::int64_t kVocab = 40;
constexpr double kFloat = 0x1p-23, kBfloat = 0x1p-8;  // epsilons
constexpr Scheme kSchemes[] = {Scheme::automatic, Scheme::ring, Scheme::gather, Scheme::ulysses};

// Ranks, and how many of them share a sequence.
struct Division {
  int ranks, sequence;
};
constexpr Division kDivisions[] = {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {4, 2}, {6, 3}};

// A batch of texts in groups, each of which has a seed for its dropout.
struct Texts {
  Tensor ids, targets;
  std::int64_t groups = 1;

  Texts(std::mt19937& rng, std::int64_t batch, std::int64_t tokens, std::int64_t all_groups) : groups(all_groups) {
    Generator drawn(static_cast<unsigned>(rng()));
    ids = drawn.randint(0, kVocab, {batch, tokens}), targets = drawn.randint(0, kVocab, {batch, tokens});
  }
  Tensor of(const Tensor& all, std::int64_t group) const {
    const std::int64_t each = all.size(0) / groups;
    return all.slice(0, group * each, (group + 1) * each);
  }
  static std::uint64_t seed(std::int64_t group) { return 1000 + static_cast<std::uint64_t>(group); }
};

struct Found {
  double loss = 0, evaluated = 0;
  std::vector<Tensor> gradients;
};

template <class Model>
Found by_one_process(Model& model, Generator& dropout, const Texts& texts) {
  Found found;
  const auto factor = 1 / static_cast<double>(texts.groups);
  model.train();
  for (std::int64_t g = 0; g < texts.groups; ++g) {
    dropout.manual_seed(Texts::seed(g));
    found.loss += factor * model.loss(texts.of(texts.ids, g), texts.of(texts.targets, g));
    model.backward(factor);
  }
  for (const Parameter* p : model.parameters()) found.gradients.push_back(p->grad);
  model.eval();
  found.evaluated = model.evaluate(texts.ids, texts.targets);
  return found;
}

std::vector<int> sharing(const Transport& all, int sequence) {
  std::vector<int> members(static_cast<std::size_t>(sequence));
  std::iota(members.begin(), members.end(), all.rank() / sequence * sequence);
  return members;
}

double sum_over(Transport& ranks, double own) {
  const std::vector<double> all = dist::all_gather(&ranks, std::vector{own});
  return std::accumulate(all.begin(), all.end(), 0.0);
}

template <class Model>
Found by_ranks(Transport& all, const Layout& layout, Scheme scheme, Model& model, Generator& dropout,
               const Texts& texts) {
  const auto group = dist::subgroup(all, sharing(all, layout.ranks()));
  const auto part = std::make_shared<SequenceRanks>(*group, layout, scheme);
  model.set_sequence(part);
  model.train();
  Found found;
  dist::GradientSum sum(&all, model.parameters(),
                        {.groups = texts.groups, .sequence_ranks = layout.ranks(), .bucket = 3000});
  const double factor = part->share() / static_cast<double>(texts.groups);
  for (std::int64_t g = sum.own_groups().first; g < sum.own_groups().last; ++g) {
    dropout.manual_seed(Texts::seed(g));
    found.loss += factor * model.loss(part->take(texts.of(texts.ids, g)), part->take(texts.of(texts.targets, g)));
    model.backward(factor, [&](std::span<Parameter* const> ready) { sum.take(ready); });
  }
  sum.finish();
  found.loss = sum_over(all, found.loss);
  for (const Parameter* p : model.parameters()) found.gradients.push_back(p->grad);
  model.eval();
  found.evaluated = sum_over(*group, part->share() * model.evaluate(part->take(texts.ids), part->take(texts.targets)));
  return found;
}

// Within `roundings` epsilons of the loss, and of the largest element of all gradients.
void expect_near(const Found& found, const Found& expected, double roundings, const std::vector<Parameter*>& of) {
  EXPECT_NEAR(found.loss, expected.loss, roundings * expected.loss);
  EXPECT_NEAR(found.evaluated, expected.evaluated, roundings * expected.evaluated);
  double largest = 0;
  for (const Tensor& t : expected.gradients) {
    for (const double x : values(t)) largest = std::fmax(largest, std::fabs(x));
  }
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (std::size_t i = 0; i < of.size(); ++i) {
    const auto a = values(found.gradients[i]), b = values(expected.gradients[i]);
    for (std::size_t j = 0; j < b.size(); ++j) {
      ASSERT_NEAR(a[j], b[j], roundings * largest) << of[i]->name << ", element " << j;
    }
  }
}

// make(rng) is a model that draws its dropout from rng, with the weights of `whole`.
template <class Make, class Model>
void expect_alike(std::mt19937& rng, std::int64_t tokens, DropoutFlavour flavour, double roundings, Model& whole,
                  const Make& make) {
  const Texts texts(rng, 4, tokens, 2);
  Generator dropout(1, flavour);
  auto alone = make(dropout);
  alone->load_state_dict(whole.state_dict());
  const Found expected = by_one_process(*alone, dropout, texts);
  for (const auto& [ranks, sequence] : kDivisions) {
    const Layout layout = pick(rng, 0, 1) == 0 ? Layout::zigzag(tokens, sequence) : Layout::even(tokens, sequence);
    const Scheme scheme = kSchemes[pick(rng, 0, 3)];
    dist::run_threads(ranks, [&, on = ranks](Transport& all) {
      const Threads one(1);
      Generator own(2, flavour);
      auto model = make(own);
      model->load_state_dict(whole.state_dict());
      const Found found = by_ranks(all, layout, scheme, *model, own, texts);
      SCOPED_TRACE("rank " + std::to_string(all.rank()) + " of " + std::to_string(on) + ", " +
                   std::to_string(layout.ranks()) + " a sequence, " + std::string(dist::name(scheme)));
      expect_near(found, expected, roundings, model->parameters());
    });
  }
}

TEST(SequenceRanks, AGptHasTheGradientsOfOneProcess) {
  const Threads one(1);
  for_seeds(15, [](std::mt19937& rng) {
    GPTConfig config{.vocab_size = kVocab, .context_length = 24, .layers = 2, .heads = 3, .width = 24};
    config.tied = chance(rng, 0.5);
    config.dropout = chance(rng, 0.8) ? 0.3 : 0;
    const auto flavour = static_cast<DropoutFlavour>(pick(rng, 0, 2));
    const bool medium = chance(rng, 0.3);
    if (medium) config.precision = Precision::medium;
    Generator drawn(static_cast<unsigned>(rng()));
    GPT whole(config, drawn);
    for (Parameter* p : whole.parameters()) {  // biases too, and positions that matter
      p->value = uniform(rng, p->value.shape(), DType::f32, -0.3, 0.3);
    }
    expect_alike(rng, pick(rng, 4, 24), flavour, 16 * (medium ? kBfloat : kFloat), whole,
                 [&](Generator& own) { return std::make_unique<GPT>(config, own); });
  });
}

LanguageModelConfig released(std::mt19937& rng) {
  LanguageModelConfig c{.vocab_size = kVocab, .context_length = 24, .width = 32, .inner_width = 48, .heads = 4};
  c.kv_heads = chance(rng, 0.5) ? 2 : 4;
  c.ropes = {RopeConfig{.head_dim = 8}};
  c.layers = {LayerConfig{}, LayerConfig{.window = pick(rng, 1, 8)}, LayerConfig{.rope = {}}};
  c.query_key_norm = static_cast<QueryKeyNorm>(pick(rng, 0, 2));
  c.sinks = chance(rng, 0.6);
  c.attention_softcap = chance(rng, 0.5) ? 5 : 0;
  c.tied = chance(rng, 0.5);
  return c;
}

TEST(SequenceRanks, AReleasedModelHasTheGradientsOfOneProcess) {
  const Threads one(1);
  for_seeds(6, [](std::mt19937& rng) {
    const LanguageModelConfig config = released(rng);
    LanguageModel whole(config);
    for (Parameter* p : whole.parameters()) p->value = uniform(rng, p->value.shape(), DType::f32, -0.5, 0.5);
    expect_alike(rng, pick(rng, 4, 24), DropoutFlavour::philox, 16 * kFloat, whole,
                 [&](Generator&) { return std::make_unique<LanguageModel>(config); });
  });
}

bool all_have_rows(const Layout& layout) {
  for (int r = 0; r < layout.ranks(); ++r) {
    if (layout.rows(r) == 0) return false;
  }
  return true;
}

// A layer that turns queries and keys by their positions, on any runs of tokens.
TEST(SequenceRanks, ALayerHasTheRowsOfOneProcess) {
  const Threads one(1);
  for_seeds(12, [](std::mt19937& rng) {
    ModuleConfig config{.d_in = 12, .d_out = 16};
    config.num_heads = 2, config.dropout = 0.25, config.causal = chance(rng, 0.7);
    config.rope = rotary_frequencies(RopeConfig{.head_dim = 8});
    const auto flavour = static_cast<DropoutFlavour>(pick(rng, 0, 2));
    const std::int64_t tokens = pick(rng, 8, 30);
    const int ranks = static_cast<int>(pick(rng, 1, 4));
    Layout layout;
    do {
      layout = random_layout(rng, tokens, ranks);
    } while (!all_have_rows(layout));
    const Tensor x = uniform(rng, {2, tokens, 12}, DType::f32), dz = uniform(rng, {2, tokens, 16}, DType::f32);
    Generator drawn(static_cast<unsigned>(rng()), flavour);
    MultiHeadAttention whole(config, drawn);
    whole.train();
    drawn.manual_seed(5);
    const Tensor z = whole.forward(x), dx = whole.backward(dz).x;
    dist::run_threads(ranks, [&](Transport& transport) {
      const Threads own_threads(1);
      Generator own(3, flavour);
      MultiHeadAttention layer(config, own);
      layer.load_state_dict(whole.state_dict());
      layer.set_sequence(std::make_shared<SequenceRanks>(transport, layout));
      layer.train();
      own.manual_seed(5);
      const auto rows = [&](const Tensor& t) { return layout.take(t, 1, transport.rank()); };
      expect_close(layer.forward(rows(x)), rows(z), 16 * kFloat, "output");
      expect_close(layer.backward(rows(dz)).x, rows(dx), 16 * kFloat, "dx");
    });
  });
}

TEST(SequenceRanks, TellsWhatDoesNotFit) {
  const auto fails = [](Error::Kind kind, const std::vector<std::string>& parts, auto&& body) {
    expect_error(kind, parts, [&] { dist::run_threads(2, body); });
  };
  const auto argument = Error::Kind::argument, shape = Error::Kind::shape;
  fails(argument, {"a layout for 2 ranks", "for 3"}, [](Transport& t) { SequenceRanks(t, Layout::even(9, 3)); });
  fails(argument, {"tokens for each rank", "none of 1 for rank 1"},
        [](Transport& t) { SequenceRanks(t, Layout::even(1, 2)); });
  fails(argument, {"no additive mask"}, [](Transport& t) {
    const Tensor q = Tensor::zeros({1, 1, 2, 8});
    SequenceRanks(t, Layout::even(4, 2)).attention(q, q, q, {.mask = Mask::additive(Tensor::zeros({1, 4}))});
  });
  const auto gpt = [](std::int64_t of_tokens, auto&& use) {
    return [=](Transport& t) {
      Generator rng(1);
      GPT model({.vocab_size = kVocab, .context_length = 8, .layers = 1, .heads = 1, .width = 8}, rng);
      model.set_sequence(std::make_shared<SequenceRanks>(t, Layout::even(of_tokens, 2)));
      use(model);
    };
  };
  const auto ids = [](std::int64_t tokens) { return Tensor::zeros({1, tokens}, DType::i64); };
  fails(shape, {"the 3 tokens of this part", "found 4"}, gpt(6, [&](GPT& model) { model.forward(ids(4)); }));
  fails(shape, {"at most context_length = 8", "parts of 10"}, gpt(10, [&](GPT& model) { model.forward(ids(5)); }));
  fails(argument, {"without a trace", "a trace"}, gpt(8, [&](GPT& model) {
          Trace trace;
          model.forward(ids(4), &trace);
        }));
  fails(argument, {"another source"}, gpt(8, [](GPT& model) {
          model.blocks[0]->attention.forward(Tensor::zeros({4, 8}), Tensor::zeros({4, 8}), nullptr);
        }));
  struct Part : SequencePart {
    using SequencePart::SequencePart;
    AttentionResult attention(const Tensor&, const Tensor&, const Tensor&, const AttentionOptions&) override {
      return {};
    }
    AttentionGradient attention_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                         const AttentionOptions&, const AttentionResult&) override {
      return {};
    }
  };
  expect_error(argument, {"positions from 0 to 3", "found none"}, [] { Part(4, {}); });
  expect_error(argument, {"positions from 0 to 3", "found 4"}, [] { Part(4, {0, 4}); });
}

}  // namespace
}  // namespace attn::test
