// Sums of gradients: the same bits on any ranks, and those of a tree that is written down once more here.
#include "attn/gradient_sum.hpp"

#include <numeric>

#include "attn/gpt.hpp"
#include "attn/optim.hpp"
#include "core/testing.hpp"
#include "core/threads.hpp"

namespace attn::test {
namespace {

namespace dist = attn::distributed;
using dist::GradientSum;
using dist::Transport;

constexpr int kRanks[] = {1, 2, 3, 4, 8};

// Each group's gradient of each parameter.
struct Problem {
  std::vector<Tensor> values;
  std::vector<std::vector<Tensor>> gradients;  // by group
  std::int64_t groups = 1, bucket = 1;
};

Tensor numbers(std::mt19937& rng, const Shape& shape) {
  const Tensor t = Tensor::empty(shape);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = normal(rng) * std::exp2f(normal(rng) * 8);
  return t;
}

Problem random_problem(std::mt19937& rng, std::int64_t ranks) {
  Problem p;
  for (std::int64_t n = pick(rng, 1, 6); n > 0; --n) {
    const std::int64_t rows = pick(rng, 1, 90), columns = pick(rng, 1, 200);
    p.values.push_back(numbers(rng, pick(rng, 0, 2) == 0 ? Shape{columns} : Shape{rows, columns}));
  }
  p.groups = ranks * pick(rng, 1, 5), p.bucket = pick(rng, 1, 20000);
  p.gradients.resize(static_cast<std::size_t>(p.groups));
  for (auto& group : p.gradients) {
    for (const Tensor& value : p.values) group.push_back(numbers(rng, value.shape()));
  }
  return p;
}

// Groups [first, last): the first half has the largest power of two that leaves something for the second.
float tree_sum(const Problem& p, std::size_t parameter, std::int64_t element, std::int64_t first, std::int64_t last) {
  if (last - first == 1) return p.gradients[static_cast<std::size_t>(first)][parameter].data<float>()[element];
  std::int64_t half = 1;
  while (2 * half < last - first) half *= 2;
  return tree_sum(p, parameter, element, first, first + half) + tree_sum(p, parameter, element, first + half, last);
}

std::vector<Tensor> tree_sums(const Problem& p) {
  std::vector<Tensor> sums;
  for (std::size_t i = 0; i < p.values.size(); ++i) {
    sums.push_back(Tensor::empty(p.values[i].shape()));
    for (std::int64_t e = 0; e < sums[i].numel(); ++e) sums[i].data<float>()[e] = tree_sum(p, i, e, 0, p.groups);
  }
  return sums;
}

// A rank's parameters, and the sum over them.
struct Rank {
  std::vector<Parameter> parameters;
  std::vector<Parameter*> all;
  std::unique_ptr<GradientSum> sum;

  Rank(const Problem& p, Transport* transport, bool sharded, int sequence = 1) {
    for (std::size_t i = 0; i < p.values.size(); ++i) {
      parameters.push_back({"p" + std::to_string(i), p.values[i].clone(), {}});
    }
    for (Parameter& one : parameters) all.push_back(&one);
    sum = std::make_unique<GradientSum>(
        transport, all,
        dist::GradientSumOptions{
            .groups = p.groups, .sequence_ranks = sequence, .sharded = sharded, .bucket = p.bucket});
  }

  // Adds gradients as backward passes finish them: in an order of their own, some at a time.
  void run(std::mt19937& rng, const Problem& p, float factor = 1) {
    for (std::int64_t g = sum->own_groups().first; g < sum->own_groups().last; ++g) {
      std::vector<Parameter*> order = all;
      std::shuffle(order.begin(), order.end(), rng);
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i]->grad = p.gradients[static_cast<std::size_t>(g)][i].clone();
        for (std::int64_t e = 0; e < all[i]->grad.numel(); ++e) all[i]->grad.data<float>()[e] *= factor;
      }
      const std::size_t some = static_cast<std::size_t>(pick(rng, 0, static_cast<std::int64_t>(order.size())));
      sum->take(std::span(order).first(some)), sum->take(std::span(order).subspan(some));
      for (const Parameter* one : all) EXPECT_FALSE(one->grad.defined());
    }
    sum->finish();
  }
};

template <class Body>
void on_ranks(unsigned seeds, Body&& body) {
  const Threads one(1);
  for_seeds(seeds, [&](std::mt19937& rng) {
    for (const int ranks : kRanks) {
      const Problem p = random_problem(rng, ranks);
      const std::vector<Tensor> expected = tree_sums(p);
      const auto seed = static_cast<unsigned>(rng());
      dist::run_threads(ranks, [&](Transport& transport) {
        const Threads own(1);
        std::mt19937 mine(seed + static_cast<unsigned>(transport.rank()));
        body(p, expected, transport, mine);
      });
    }
  });
}

TEST(GradientSum, IsTheTreesOnAnyRanks) {
  on_ranks(10, [](const Problem& p, const std::vector<Tensor>& expected, Transport& transport, std::mt19937& rng) {
    Rank alone(p, nullptr, false), rank(p, &transport, false);
    for (int step = 0; step < 2; ++step) {
      alone.run(rng, p), rank.run(rng, p);
      double squares = 0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(identical(expected[i], alone.all[i]->grad)) << i << " alone";
        EXPECT_TRUE(identical(expected[i], rank.all[i]->grad)) << i << " on " << transport.size() << " ranks";
        for (std::int64_t e = 0; e < expected[i].numel(); ++e) squares += std::pow(expected[i].data<float>()[e], 2.0);
      }
      EXPECT_EQ(alone.sum->norm(), rank.sum->norm());
      EXPECT_NEAR(rank.sum->norm(), std::sqrt(squares), 1e-6 * std::sqrt(squares));
    }
  });
}

TEST(GradientSum, ShardsTrainAsTheWhole) {
  on_ranks(10, [](const Problem& p, const std::vector<Tensor>&, Transport& transport, std::mt19937& rng) {
    Rank whole(p, nullptr, false), rank(p, &transport, true);
    AdamW expected(whole.sum->own(), {}), adamw(rank.sum->own(), {});
    std::int64_t elements = 0;
    for (const Parameter* own : rank.sum->own()) elements += own->value.numel();
    for (int step = 0; step < 3; ++step) {
      whole.run(rng, p), rank.run(rng, p);
      EXPECT_EQ(whole.sum->norm(), rank.sum->norm());
      expected.step(0.01, 0.5), adamw.step(0.01, 0.5);
      rank.sum->share_values();
      for (std::size_t i = 0; i < p.values.size(); ++i) {
        EXPECT_TRUE(identical(whole.all[i]->value, rank.all[i]->value)) << i << " on " << transport.size();
        EXPECT_FALSE(identical(p.values[i], rank.all[i]->value));
      }
    }
    // Each element is one rank's, and the parts make up the whole.
    const std::vector<double> all = dist::all_gather(&transport, std::vector<double>{static_cast<double>(elements)});
    double sum = 0;
    for (const Tensor& value : p.values) sum += static_cast<double>(value.numel());
    EXPECT_EQ(std::accumulate(all.begin(), all.end(), 0.0), sum);
    const std::vector<Tensor> again = rank.sum->gathered(rank.sum->own_parts(p.values));
    if (transport.rank() != 0) return;
    for (std::size_t i = 0; i < p.values.size(); ++i) EXPECT_TRUE(identical(p.values[i], again.at(i)));
  });
}

// Ranks 0 and 1 have the same groups, and so on: they add what the two parts of each sequence give.
TEST(GradientSum, AddsThePartsOfSequences) {
  on_ranks(5, [](const Problem& p, const std::vector<Tensor>& expected, Transport& transport, std::mt19937& rng) {
    if (transport.size() % 2 != 0) return;
    for (const bool sharded : {false, true}) {
      Rank rank(p, &transport, sharded, 2);
      EXPECT_EQ(rank.sum->own_groups().length(), 2 * p.groups / transport.size());
      rank.run(rng, p, transport.rank() % 2 == 0 ? 2.f : -1.f);
      std::vector<Tensor> grads;
      for (const Parameter* own : rank.sum->own()) grads.push_back(own->grad);
      grads = rank.sum->gathered(grads);
      for (std::size_t i = 0; i < grads.size(); ++i) EXPECT_TRUE(identical(expected[i], grads[i]));  // 2 · s - s
    }
  });
}

TEST(GradientSum, TellsWhatDoesNotFit) {
  const auto fails = [](int ranks, dist::GradientSumOptions options, const char* found) {
    expect_error(Error::Kind::argument, {"GradientSum", found}, [&] {
      dist::run_threads(ranks, [&](Transport& transport) { GradientSum(&transport, {}, options); });
    });
  };
  fails(3, {.groups = 4}, "3 data-parallel ranks");
  fails(1, {.groups = 0}, "found 0");
  fails(4, {.groups = 4, .sequence_ranks = 3}, "divide 4 ranks");
  Parameter p{"p", Tensor::zeros({3}), {}};
  GradientSum sum(nullptr, {&p}, {.groups = 2});
  p.grad = Tensor::zeros({3});
  sum.take(std::vector<Parameter*>{&p});
  expect_error(Error::Kind::argument, {"2 groups", "1 groups"}, [&] { sum.finish(); });
  p.grad = Tensor::zeros({4});
  expect_error(Error::Kind::shape, {"of p, (3,)", "(4,)"}, [&] { sum.take(std::vector<Parameter*>{&p}); });
  p.requires_grad = false;
  expect_error(Error::Kind::argument, {"require a gradient", "found p"}, [&] { GradientSum(nullptr, {&p}); });
}

// A model's gradients, as its backward pass finishes them: the bits of one process, and near those of the whole batch.
TEST(GradientSum, OfAModelIsThatOfOneProcess) {
  const Threads one(1);
  constexpr std::int64_t kBatch = 8, kTokens = 12;
  const GPTConfig config{.vocab_size = 40, .context_length = kTokens, .layers = 2, .heads = 2, .width = 24};
  for (const bool tied : {true, false}) {
    for_seeds(2, [&](std::mt19937& rng) {
      GPTConfig mine = config;
      mine.tied = tied;
      const auto seed = static_cast<unsigned>(rng());
      Generator drawn(seed);
      const Tensor ids = drawn.randint(0, 40, {kBatch, kTokens}), targets = drawn.randint(0, 40, {kBatch, kTokens});
      GPT whole(mine, drawn);
      const double loss = whole.loss(ids, targets);
      whole.backward();
      std::vector<Tensor> first;
      for (const int ranks : {1, 2, 4, 8}) {
        dist::run_threads(ranks, [&](Transport& transport) {
          const Threads own(1);
          Generator unused(1);
          GPT model(mine, unused);
          model.load_state_dict(whole.state_dict());
          GradientSum sum(&transport, model.parameters(), {.groups = kBatch, .bucket = 3000});
          std::vector<double> losses;
          for (std::int64_t g = sum.own_groups().first; g < sum.own_groups().last; ++g) {
            losses.push_back(model.loss(ids.slice(0, g, g + 1), targets.slice(0, g, g + 1)));
            model.backward(1.0 / kBatch, [&](std::span<Parameter* const> ready) { sum.take(ready); });
          }
          sum.finish();
          losses = dist::all_gather(&transport, losses);
          EXPECT_NEAR(std::accumulate(losses.begin(), losses.end(), 0.0) / kBatch, loss, 1e-6 * loss);
          if (transport.rank() != 0) return;
          const auto parameters = model.parameters(), wanted = whole.parameters();
          for (std::size_t i = 0; i < parameters.size(); ++i) {
            if (ranks == 1) {
              expect_close(parameters[i]->grad, wanted[i]->grad, 1e-5, wanted[i]->name, 1);
              first.push_back(parameters[i]->grad);
            } else {
              EXPECT_TRUE(identical(parameters[i]->grad, first[i])) << wanted[i]->name << " on " << ranks << " ranks";
            }
          }
        });
      }
    });
  }
}

}  // namespace
}  // namespace attn::test
