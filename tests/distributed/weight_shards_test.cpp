// Models whose weights are divided among ranks: the bits of whole weights, what a rank holds, and what is refused.
#include "attn/weight_shards.hpp"

#include <numeric>
#include <set>

#include "attn/generate.hpp"
#include "attn/gpt.hpp"
#include "attn/gradient_sum.hpp"
#include "attn/language_model.hpp"
#include "attn/optim.hpp"
#include "attn/sequence_ranks.hpp"
#include "distributed/on_ranks.hpp"

namespace attn::test {
namespace {

namespace dist = attn::distributed;
using dist::GradientSum;
using dist::Transport;
using dist::WeightShards;

constexpr std::int64_t kVocab = 300, kTokens = 6, kGroups = 24, kWidth = 24, kWide = 96;
constexpr int kSteps = 3;

struct Texts {
  Tensor ids, targets;

  explicit Texts(unsigned seed) {
    Generator drawn(seed);
    ids = drawn.randint(0, kVocab, {kGroups, kTokens}), targets = drawn.randint(0, kVocab, {kGroups, kTokens});
  }
};

std::unique_ptr<GPT> gpt_of(bool tied, Generator& dropout, std::int64_t width) {
  GPTConfig c{.vocab_size = kVocab, .context_length = kTokens, .layers = 3, .heads = 2, .width = width};
  c.dropout = 0.1, c.tied = tied;
  Generator drawn(7);
  GPT whole(c, drawn);
  auto model = std::make_unique<GPT>(c, dropout, Initial::zeros);
  model->load_state_dict(whole.state_dict());
  return model;
}

std::unique_ptr<GPT> gpt(bool tied, Generator& dropout) { return gpt_of(tied, dropout, kWidth); }

std::unique_ptr<LanguageModel> language_model(bool tied, Generator&) {
  LanguageModelConfig c;
  c.vocab_size = kVocab, c.context_length = kTokens, c.width = kWidth, c.inner_width = 40, c.heads = 4, c.kv_heads = 2;
  c.layers.resize(2), c.ropes = {RopeConfig{.head_dim = kWidth / 4}}, c.qkv_bias = true, c.tied = tied;
  c.query_key_norm = QueryKeyNorm::each_head, c.sinks = true, c.logits_softcap = 20;
  auto model = std::make_unique<LanguageModel>(c);
  Generator drawn(8);
  for (Parameter* p : model->parameters()) p->value = drawn.uniform(p->value.shape(), -0.1, 0.1);
  return model;
}

// The results of training, which must not depend on ranks.
struct Trained {
  std::vector<double> losses, norms, evaluated;
  StateDict weights;
};

void expect_identical(const Trained& found, const Trained& expected) {
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.norms, expected.norms);
  EXPECT_EQ(found.evaluated, expected.evaluated);
  ASSERT_EQ(found.weights.size(), expected.weights.size());
  for (const auto& [name, value] : expected.weights) EXPECT_TRUE(identical(found.weights.at(name), value)) << name;
}

// Some steps by groups of one text; with weights that are divided, or with whole ones.
template <class Model>
Trained train(Transport* ranks, Model& model, Generator& dropout, const Texts& texts, bool divided,
              const std::shared_ptr<dist::SequenceRanks>& part = nullptr, int sequence = 1) {
  model.set_sequence(part);
  const auto shards = divided ? std::make_shared<WeightShards>(ranks, model.weight_parts()) : nullptr;
  model.set_weights(shards);
  GradientSum sum(ranks, model.parameters(),
                  {.groups = kGroups, .sequence_ranks = sequence, .bucket = 3000, .weights = shards.get()});
  AdamW adamw(sum.own());
  const auto own = [&](const Tensor& all, std::int64_t g) {
    const Tensor one = all.slice(0, g, g + 1);
    return part ? part->take(one) : one;
  };
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> losses;
    model.train(), model.zero_grad();
    for (std::int64_t g = sum.own_groups().first; g < sum.own_groups().last; ++g) {
      dropout.manual_seed(static_cast<unsigned>(100 * step + g));
      losses.push_back(model.loss(own(texts.ids, g), own(texts.targets, g)));
      model.backward(1.0 / kGroups, [&](std::span<Parameter* const> ready) { sum.take(ready); });
    }
    sum.finish();
    for (const double loss : dist::all_gather(ranks, losses)) trained.losses.push_back(loss);
    trained.norms.push_back(sum.norm());
    adamw.step(0.01);
    sum.share_values();
    model.eval();
    trained.evaluated.push_back(model.evaluate(own(texts.ids, 0), own(texts.targets, 0)));
  }
  if (shards) shards->gather();
  for (const auto& [name, value] : model.state_dict()) trained.weights.emplace(name, value.clone());
  if (shards) shards->divide();
  return trained;
}

template <class Make>
void expect_as_whole(const Make& make) {
  const Threads one(1);
  for (const bool tied : {true, false}) {
    for_seeds(1, [&](std::mt19937& rng) {
      const Texts texts(static_cast<unsigned>(rng()));
      Generator dropout(1);
      const auto whole = make(tied, dropout);
      const Trained expected = train(nullptr, *whole, dropout, texts, false);
      EXPECT_NE(expected.losses.front(), expected.losses.back());
      for (const int ranks : kRanks) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks" + (tied ? ", tied" : ""));
        dist::run_threads(ranks, [&](Transport& transport) {
          const Threads own(1);
          Generator mine(2);
          const auto model = make(tied, mine);
          expect_identical(train(&transport, *model, mine, texts, true), expected);
        });
      }
    });
  }
}

TEST(WeightShards, GPTTrainsAsWithWholeWeights) { expect_as_whole(gpt); }
TEST(WeightShards, LanguageModelTrainsAsWithWholeWeights) { expect_as_whole(language_model); }

TEST(WeightShards, SequencesThatAreCutTrainAsWithWholeWeights) {
  const Threads one(1);
  const Texts texts(3);
  dist::run_threads(4, [&](Transport& transport) {
    const Threads own(1);
    const int first = transport.rank() / 2 * 2;
    const auto sharing = dist::subgroup(transport, {first, first + 1});
    const auto part = std::make_shared<dist::SequenceRanks>(*sharing, dist::Layout::zigzag(kTokens, 2));
    Trained found[2];
    for (const bool divided : {false, true}) {
      Generator dropout(1);
      const auto model = gpt(true, dropout);
      found[divided] = train(&transport, *model, dropout, texts, divided, part, 2);
    }
    expect_identical(found[true], found[false]);
  });
}

// logits and their gradient, and passes that end early.
TEST(WeightShards, OtherPassesAreThoseOfWholeWeights) {
  const Threads one(1);
  const Texts texts(4);
  Generator unused(1);
  const auto whole = gpt(false, unused);
  const Tensor ids = texts.ids.slice(0, 0, 2), targets = texts.targets.slice(0, 0, 2), logits = whole->forward(ids);
  whole->backward(logits);
  const double loss = whole->evaluate(ids, targets);
  const Tensor next = Decoder(*whole, 2).read(ids);
  dist::run_threads(3, [&](Transport& transport) {
    const Threads own(1);
    Generator mine(1);
    const auto model = gpt(false, mine);
    const auto shards = std::make_shared<WeightShards>(&transport, model->weight_parts());
    model->set_weights(shards);
    EXPECT_EQ(model->loss(ids, targets), loss);  // whose backward pass has been prepared, and does not come
    EXPECT_TRUE(identical(model->forward(ids), logits));
    model->backward(logits);
    const auto found = model->parameters(), expected = whole->parameters();
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(identical(found[i]->grad, expected[i]->grad)) << i;
    EXPECT_EQ(model->loss(ids, targets), loss);
    shards->gather(1);  // on rank 1 alone
    for (const Parameter* p : found) EXPECT_EQ(is_absent(p->value), transport.rank() != 1) << p->name;
    shards->divide();
    for (const Parameter* p : found) EXPECT_TRUE(is_absent(p->value)) << p->name;
    shards->gather();
    Decoder decoder(*model, 2);
    EXPECT_TRUE(identical(decoder.read(ids), next));
    shards->divide();
    EXPECT_EQ(model->evaluate(ids, targets), loss);
  });
}

// Counts what a model takes.
class Watched : public WeightSource {
 public:
  explicit Watched(std::shared_ptr<WeightShards> shards) : shards_(std::move(shards)) {}

  void begin(std::size_t part) override { shards_->begin(part), begun_.insert(part); }
  void take(std::size_t part) override {
    ++takes, before += begun_.erase(part);
    shards_->take(part);
    std::size_t elements = 0;
    for (const auto& parameters : shards_->parts()) {
      for (const Parameter* p : parameters)
        elements += is_absent(p->value) ? 0 : static_cast<std::size_t>(p->value.numel());
    }
    most = std::max(most, elements * sizeof(float));
  }
  void release(std::size_t part) noexcept override { shards_->release(part); }

  std::size_t takes = 0, before = 0, most = 0;  // those that were on their way before; bytes of whole weights at once

 private:
  std::shared_ptr<WeightShards> shards_;
  std::set<std::size_t> begun_;
};

TEST(WeightShards, ARankHoldsItsPartAndWhatItComputesWith) {
  const Threads one(1);
  const Texts texts(5);
  for (const int ranks : {2, 4}) {
    dist::run_threads(ranks, [&](Transport& transport) {
      const Threads own(1);
      Generator dropout(1);
      const auto model = gpt_of(true, dropout, kWide);  // so that many units of elements are divided
      const auto parts = model->weight_parts();
      std::size_t all = 0, longest = 0;
      for (const auto& parameters : parts) {
        std::size_t bytes = 0;
        for (const Parameter* p : parameters) bytes += static_cast<std::size_t>(p->value.numel()) * sizeof(float);
        all += bytes, longest = std::max(longest, bytes);
      }
      const auto shards = std::make_shared<WeightShards>(&transport, parts);
      const auto watched = std::make_shared<Watched>(shards);
      model->set_weights(watched);
      const auto expect_divided = [&] {
        for (const Parameter* p : model->parameters()) EXPECT_TRUE(is_absent(p->value)) << p->name;
      };
      expect_divided();
      const std::vector<double> held = dist::all_gather(&transport, std::vector{static_cast<double>(shards->bytes())});
      EXPECT_EQ(std::accumulate(held.begin(), held.end(), 0.0), static_cast<double>(all));
      EXPECT_LT(*std::ranges::max_element(held), 1.1 * static_cast<double>(all) / ranks);
      model->loss(texts.ids, texts.targets);
      expect_divided();
      const std::size_t forward = parts.size() + 1;  // the head is wte once more
      EXPECT_EQ(watched->takes, forward);
      model->backward(1, [&](std::span<Parameter* const>) { expect_divided(); });
      EXPECT_EQ(watched->takes, forward + 4);                               // three blocks and a norm
      EXPECT_EQ(watched->before, forward + 4 - 1);                          // all but the first were on their way
      EXPECT_LE(watched->most, longest + kTokens * kWide * sizeof(float));  // a part, or wte and wpe
      shards->gather();
      EXPECT_EQ(shards->bytes(), static_cast<std::size_t>(held[static_cast<std::size_t>(transport.rank())]));
    });
  }
}

// Counts what a rank sends.
class Counted : public Transport {
 public:
  explicit Counted(Transport& all) : all_(all) {}

  int rank() const noexcept override { return all_.rank(); }
  int size() const noexcept override { return all_.size(); }
  dist::Request send(int to, dist::Bytes message, int tag) override {
    bytes += static_cast<double>(message.size());
    return all_.send(to, message, tag);
  }
  dist::Request receive(int from, dist::Room message, int tag) override { return all_.receive(from, message, tag); }

  double bytes = 0;

 private:
  Transport& all_;
};

// The numbers of docs/training-on-ranks.md: P - 1 times what all ranks together keep, as each sends its part to the others.
TEST(WeightShards, AStepSendsHalfAsMuchAgain) {
  const Texts texts(9);
  dist::run_threads(4, [&](Transport& transport) {
    const Threads own(1);
    for (const bool divided : {false, true}) {
      for (const bool tied : {true, false}) {
        Generator dropout(1);
        const auto model = gpt(tied, dropout);
        double all = 0, ends = 0;  // bytes of all weights; of those that the backward pass does without
        for (const Parameter* p : model->parameters()) all += static_cast<double>(p->value.numel()) * sizeof(float);
        for (const Parameter* p : {&model->positions, &model->embedding, &model->lm_head}) {
          if (tied && p != &model->positions) continue;  // a tied head takes wte in its place
          ends += static_cast<double>(p->value.numel()) * sizeof(float);
        }
        Counted counted(transport);
        const auto shards = divided ? std::make_shared<WeightShards>(&counted, model->weight_parts()) : nullptr;
        model->set_weights(shards);
        GradientSum sum(&counted, model->parameters(), {.groups = 4, .weights = shards.get()});
        model->loss(texts.ids, texts.targets);
        model->backward(1, [&](std::span<Parameter* const> ready) { sum.take(ready); });
        sum.finish();
        const std::vector<double> sent = dist::all_gather(&transport, std::vector{counted.bytes});
        EXPECT_EQ(std::accumulate(sent.begin(), sent.end(), 0.0), 3 * (divided ? 3 * all - ends : 2 * all));
      }
    }
  });
}

TEST(WeightShards, AreGatheredWhileAPartIsHeld) {
  dist::run_threads(3, [&](Transport& transport) {
    const Threads own(1);
    Generator dropout(1);
    const auto model = gpt(true, dropout), whole = gpt(true, dropout);
    WeightShards shards(&transport, model->weight_parts());
    shards.take(0);
    shards.begin(1);
    shards.gather(1);
    for (std::size_t i = 0; transport.rank() == 1 && i < whole->parameters().size(); ++i) {
      EXPECT_TRUE(identical(model->parameters()[i]->value, whole->parameters()[i]->value));
    }
    shards.divide();
    for (const Parameter* p : model->parameters()) EXPECT_TRUE(is_absent(p->value)) << p->name;
    shards.take(2);  // no message was left over
    for (std::size_t i = 0; i < shards.parts()[2].size(); ++i) {
      EXPECT_TRUE(identical(shards.parts()[2][i]->value, whole->weight_parts()[2][i]->value)) << i;
    }
    expect_error(Error::Kind::argument, {"WeightShards", "a rank below 3", "7"}, [&] { shards.gather(7); });
  });
}

TEST(WeightShards, AreOutOfStepAfterACallThatFailed) {
  const auto one_throws = [](Transport& transport) {
    const Threads own(1);
    Generator dropout(1);
    const auto model = gpt(true, dropout);
    WeightShards shards(&transport, model->weight_parts());
    if (transport.rank() == 1) throw std::runtime_error("this rank alone");
    EXPECT_ANY_THROW(shards.take(0));
    for (const auto& again : {std::function<void()>([&] { shards.take(0); }), {[&] { shards.gather(); }}}) {
      expect_error(Error::Kind::data, {"WeightShards", "ranks that are in step", "failed"}, again);
    }
  };
  EXPECT_THROW(dist::run_threads(2, one_throws), std::runtime_error);
}

TEST(WeightShards, TellsWhatIsNotHere) {
  const Texts texts(6);
  dist::run_threads(2, [&](Transport& transport) {
    const Threads own(1);
    Generator dropout(1);
    const auto model = gpt(true, dropout);
    const auto other = gpt(true, dropout);
    const auto language = language_model(true, dropout);
    const auto shards = std::make_shared<WeightShards>(&transport, model->weight_parts());
    const auto theirs = std::make_shared<WeightShards>(&transport, language->weight_parts());
    const auto refuses = [](const char* what, const std::function<void()>& work) {
      expect_error(Error::Kind::argument, {"weights", what, "divided among ranks"}, work);
    };
    const Tensor x = Tensor::zeros({2, kWidth});
    refuses("wte.weight", [&] { model->forward(texts.ids); });  // set_weights() was forgotten
    refuses("wte.weight", [&] { model->evaluate(texts.ids, texts.targets); });
    refuses("embed_tokens.weight", [&] { language->forward(texts.ids); });
    refuses("h.0.ln_1.weight", [&] { model->blocks[0]->forward(x); });
    refuses("h.0.mlp.c_fc.weight", [&] { model->blocks[0]->feed_forward.forward(x); });
    refuses("h.0.attn.W_query.weight", [&] { model->blocks[0]->attention.forward(x); });
    refuses("layers.0.input_layernorm.weight", [&] { language->blocks[0]->forward(x); });
    refuses("layers.1.mlp.gate_proj.weight", [&] { language->blocks[1]->feed_forward.forward(x); });
    refuses("wte.weight", [&] { Decoder(*model).read(texts.ids.slice(0, 0, 1)); });
    refuses("embed_tokens.weight", [&] { Decoder(*language).read(std::vector<std::int64_t>{1}); });
    refuses("wte.weight", [&] { model->state_dict(); });
    refuses("wte.weight", [&] { model->load_state_dict(other->state_dict()); });
    refuses("wte.weight", [&] { AdamW optimizer(model->parameters()); });
    refuses("wte.weight", [&] { store_matrices(*model, DType::i8); });
    refuses("wte.weight", [&] { WeightShards again(&transport, model->weight_parts()); });
    expect_error(Error::Kind::argument, {"GradientSum", "divided weights"},
                 [&] { GradientSum(&transport, other->parameters(), {.groups = 2, .weights = shards.get()}); });
    model->set_weights(shards);
    EXPECT_NO_THROW(model->forward(texts.ids));
  });
}

}  // namespace
}  // namespace attn::test
