// Whatever is shared out to threads, on every unit, in problems that are small and have several tasks: for the thread
// sanitizer (make sanitize-threads), and for the bits, which 2 to 8 threads do not change.
#include "core/threads.hpp"

#include <array>
#include <functional>
#include <thread>

#include "attn/attention.hpp"
#include "attn/generate.hpp"
#include "attn/gpt.hpp"
#include "attn/kv_cache.hpp"
#include "attn/linear_attention.hpp"
#include "attn/modules.hpp"
#include "attn/optim.hpp"
#include "core/parallel.hpp"
#include "core/testing.hpp"
#include "kernels/use.hpp"

namespace attn::test {
namespace {

using Results = std::vector<Tensor>;

class OnThreads : public kernels::CallsOnUnits {
 protected:
  void SetUp() override {
    CallsOnUnits::SetUp();
    static_cast<void>(left_to_nightly());  // a skip here ends the test
  }

  // The same bits for one thread and for many; each time the problem is drawn anew.
  static void expect_same_bits(const std::function<Results(std::mt19937&)>& run) {
    const auto on = [&](int count) {
      const Threads threads(count);
      std::mt19937 rng(1);
      return run(rng);
    };
    const Results one = on(1);
    for (const int count : {2, 3, 8}) {
      const Results many = on(count);
      ASSERT_EQ(many.size(), one.size());
      for (std::size_t i = 0; i < one.size(); ++i) {
        ASSERT_EQ(many[i].defined(), one[i].defined());
        EXPECT_TRUE(!one[i].defined() || identical(many[i], one[i])) << count << " threads, result " << i;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, OnThreads, testing::ValuesIn(kernels::unit_names()),
                         [](const auto& unit) { return unit.param; });

Results forward_and_backward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const AttentionResult forward = attention(q, k, v, options);
  const AttentionGradient grad = attention_backward(forward.output, q, k, v, options, forward);
  return {forward.output, forward.lse, forward.weights,   grad.q, grad.k, grad.v,
          grad.bias,      grad.sinks,  grad.relative_bias};
}

// One item has many heads, which are its tasks, or few heads, whose keys are cut.
TEST_P(OnThreads, ForwardAndBackward) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Precision precision : {Precision::highest, Precision::medium}) {
      for (const std::int64_t heads : {2, 9}) {
        SCOPED_TRACE(std::string(name(dtype)) + ", " + std::string(name(precision)) + ", heads " +
                     std::to_string(heads));
        expect_same_bits([&](std::mt19937& rng) {
          const std::int64_t tq = heads == 2 ? 140 : 40, tk = heads == 2 ? 600 : 130;
          const Tensor q = uniform(rng, {1, heads, tq, 32}, dtype), k = uniform(rng, {1, heads, tk, 32}, dtype);
          AttentionOptions options{.mask = Mask::causal(Align::bottom_right), .precision = precision};
          options.dropout = 0.2, options.dropout_key = 5;
          return forward_and_backward(q, k, k, options);
        });
      }
    }
  }
}

// Plans for more threads than there are cut a call more finely, begin its tasks in another order, and let the steps of
// a chunk of keys pass over the queries one behind the other. On one thread, and on four, the bits stay.
TEST_P(OnThreads, PlansForManyThreads) {
  struct Sizes {
    std::int64_t hq, hkv, tq, tk, d;
  };
  for (const Sizes& s : {Sizes{2, 2, 300, 900, 32}, {4, 2, 200, 700, 48}, {9, 9, 140, 200, 64}, {1, 1, 600, 600, 16}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const int mask : {0, 1, 2}) {
        SCOPED_TRACE(std::string(name(dtype)) + ", heads " + std::to_string(s.hq) + ", mask " + std::to_string(mask));
        const auto planned = [&](int count, int threads) {
          const PlannedThreads as_on(count);
          const Threads running(threads);
          std::mt19937 rng(1);
          const Tensor q = uniform(rng, {1, s.hq, s.tq, s.d}, dtype), k = uniform(rng, {1, s.hkv, s.tk, s.d}, dtype);
          AttentionOptions options;
          if (mask == 1) options.mask = Mask::causal(Align::bottom_right);
          if (mask == 2)
            options.mask.bias = uniform(rng, {s.hq, s.tq, s.tk}, DType::f32), options.mask.window_left = 150;
          options.precision = mask == 2 ? Precision::high : Precision::highest;
          return forward_and_backward(q, k, k, options);
        };
        const Results one = planned(1, 1);
        // Sanitizers look at accesses: one thread's are those of four, one after the other.
        for (const int count : shortened() ? std::vector{3, 96} : std::vector{3, 8, 96}) {
          for (const int threads : shortened() ? std::vector{4} : std::vector{1, 4}) {
            const Results many = planned(count, threads);
            for (std::size_t i = 0; i < one.size(); ++i) {
              EXPECT_TRUE(!one[i].defined() || identical(many[i], one[i]))
                  << "planned for " << count << ", run on " << threads << ": result " << i;
            }
          }
        }
      }
    }
  }
}

// The bits of products stay as well: of few rows and of many, and of deep ones.
TEST_P(OnThreads, ProductsPlannedForManyThreads) {
  struct Sizes {
    std::int64_t rows, in, out;
  };
  for (const Sizes& s : {Sizes{300, 200, 500}, Sizes{1, 300, 700}, Sizes{130, 1800, 260}}) {
    const auto planned = [&](int count, int threads) {
      const PlannedThreads as_on(count);
      const Threads running(threads);
      std::mt19937 rng(1);
      Generator generator(1);
      Linear layer(s.in, s.out, true, generator);
      const Tensor x = uniform(rng, {s.rows, s.in}, DType::f32), dy = uniform(rng, {s.rows, s.out}, DType::f32);
      const Tensor y = layer.forward(x), dx = layer.backward(dy, x);
      return Results{y, dx, layer.weight.grad, layer.bias.grad};
    };
    const Results one = planned(1, 1);
    for (const int count : {3, 8, 96}) {
      const Results many = planned(count, 4);
      for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(identical(many[i], one[i])) << count << ": result " << i;
    }
  }
}

TEST_P(OnThreads, MasksBiasesAndSinks) {
  expect_same_bits([](std::mt19937& rng) {
    const Tensor q = uniform(rng, {2, 4, 90, 16}, DType::f32), k = uniform(rng, {2, 2, 300, 16}, DType::f32);
    AttentionOptions options{.softcap = 3, .return_weights = true};
    options.mask.bias = uniform(rng, {4, 90, 300}, DType::f32), options.mask.keep = booleans(rng, {2, 1, 90, 300}, 0.8);
    options.alibi_slopes = uniform(rng, {4}, DType::f32, 0, 0.1), options.sinks = uniform(rng, {4}, DType::f32);
    return forward_and_backward(q, k, k, options);
  });
}

TEST_P(OnThreads, LengthsAndPackedSequences) {
  for (const bool packed : {false, true}) {
    expect_same_bits([&](std::mt19937& rng) {
      const std::int64_t batch = packed ? 1 : 3;
      const Tensor q = uniform(rng, {batch, 2, 150, 32}, DType::f32), k = uniform(rng, {batch, 2, 200, 32}, DType::f32);
      const Tensor starts_q = integers({0, 40, 41, 150}), starts_k = integers({0, 50, 50, 200});
      return forward_and_backward(
          q, k, k, {.mask = packed ? Mask::sequences(starts_q, starts_k) : Mask::lengths(integers({200, 0, 77}))});
    });
  }
}

// Rows that leave float32's range are computed again by several threads.
TEST_P(OnThreads, Overflow) {
  expect_same_bits([](std::mt19937& rng) {
    Tensor q = uniform(rng, {1, 4, 60, 16}, DType::f32), k = uniform(rng, {1, 4, 80, 16}, DType::f32);
    q.slice(2, 30, 32).fill(1e30), k.slice(2, 10, 11).fill(1e30);
    return forward_and_backward(q, k, k, {});
  });
}

// Heads add to the gradient of one bias, and items to that of one table of distances: one head after the other.
TEST_P(OnThreads, OverflowWithLearnedBiases) {
  for (const bool table : {false, true}) {
    SCOPED_TRACE(table ? "table" : "bias");
    expect_same_bits([&](std::mt19937& rng) {
      Tensor q = uniform(rng, {4, 4, 100, 16}, DType::f32), k = uniform(rng, {4, 4, 130, 16}, DType::f32);
      const Tensor v = uniform(rng, {4, 4, 130, 16}, DType::f32);
      // Products of the first two columns leave float32's range in ten rows, and their sum is 0.
      k.slice(3, 0, 2).fill(1e10), q.slice(3, 0, 2).fill(0);
      q.slice(2, 45, 55).slice(3, 0, 1).fill(1e30), q.slice(2, 45, 55).slice(3, 1, 2).fill(-1e30);
      AttentionOptions options;
      if (table) {
        options.relative_bias.table = uniform(rng, {32, 4}, DType::f64);
      } else {
        options.mask.bias = uniform(rng, {1, 100, 130}, DType::f32);
      }
      return forward_and_backward(q, k, v, options);
    });
  }
}

TEST_P(OnThreads, ScoreFunctions) {
  expect_same_bits([](std::mt19937& rng) {
    const Tensor q = uniform(rng, {1, 4, 70, 16}, DType::f32), k = uniform(rng, {1, 4, 300, 16}, DType::f32);
    AttentionOptions options;
    options.score_function =
        ScoreFunction::elementwise([](auto s, auto, auto h, auto i, auto j) { return s * (1.0 + h) - 0.01 * (i - j); },
                                   [](auto, auto, auto h, auto, auto) { return 1.0 + h; });
    return forward_and_backward(q, k, k, options);
  });
}

TEST_P(OnThreads, DecodingFromCaches) {
  for (const DType dtype : {DType::f32, DType::i8}) {
    for (const std::int64_t page : {0, 64}) {
      expect_same_bits([&](std::mt19937& rng) {
        KVCache cache({.batch = 2, .kv_heads = 2, .head_dim = 64, .dtype = dtype, .page_size = page});
        const Tensor k = uniform(rng, {2, 2, 900, 64}, DType::f32);
        cache.append(k, k);
        Results results;
        for (const std::int64_t tq : {1, 3, 140}) {
          const Tensor q = uniform(rng, {2, 8, tq, 64}, DType::f32);
          const AttentionResult found = attention(q, cache, {.mask = Mask::causal(Align::bottom_right)});
          results.push_back(found.output), results.push_back(found.lse);
        }
        return results;
      });
    }
  }
}

TEST_P(OnThreads, StatesAndTheirGradients) {
  expect_same_bits([](std::mt19937& rng) {
    const Shape shape{2, 1, 70, 100};
    const Tensor q = uniform(rng, shape, DType::f32), k = uniform(rng, shape, DType::f32, -0.1, 0.1);
    const LinearAttentionOptions options{.rule = StateRule::delta,
                                         .decay = uniform(rng, {2, 1, 70}, DType::f32, -1, 0)};
    const LinearAttentionResult result = linear_attention(q, k, q, options);
    const LinearAttentionGradient g = linear_attention_backward(q, {}, q, k, q, options);
    return Results{result.output, result.state, g.q, g.k, g.v, g.decay};
  });
}

// Few rows, many, and deep sums; forward, and the gradients' products.
TEST_P(OnThreads, DenseProducts) {
  struct Sizes {
    std::int64_t rows, in, out;
  };
  for (const Sizes& sizes : {Sizes{3, 300, 500}, Sizes{200, 70, 300}, Sizes{40, 2500, 70}}) {
    for (const Precision precision : {Precision::highest, Precision::high, Precision::medium}) {
      expect_same_bits([&](std::mt19937& rng) {
        Generator generator(1);
        Linear linear(sizes.in, sizes.out, true, generator);
        linear.precision = precision;
        const Tensor x = uniform(rng, {sizes.rows, sizes.in}, DType::f32), y = linear.forward(x);
        const Tensor dx = linear.backward(uniform(rng, y.shape(), DType::f32), x);
        return Results{y, dx, linear.weight.grad, linear.bias.grad};
      });
    }
  }
}

// A language model: embeddings, LayerNorm, GELU, attention, cross-entropy, clipping and AdamW; then decoding.
TEST_P(OnThreads, TrainingAndGenerating) {
  for (const Precision precision : {Precision::highest, Precision::medium}) {
    expect_same_bits([&](std::mt19937&) {
      Generator rng(3);
      GPT model({.vocab_size = 300,
                 .context_length = 48,
                 .layers = 1,
                 .heads = 2,
                 .width = 64,
                 .dropout = 0.1,
                 .precision = precision},
                rng);
      model.train();
      AdamW optimizer(model.parameters());
      const Tensor ids = rng.randint(0, 300, {4, 48});
      Results results;
      for (int step = 0; step < 2; ++step) {
        for (Parameter* p : model.parameters()) p->grad = {};
        model.loss(ids, ids);
        model.backward();
        optimizer.step(1e-2, clip_factor(gradient_norm(model.parameters()), 1));
      }
      model.train(false);
      for (Parameter* p : model.parameters()) results.push_back(p->value);
      Decoder decoder(model, 4);
      results.push_back(decoder.read(ids.slice(1, 0, 40))), results.push_back(decoder.read(ids.slice(1, 40, 41)));
      return results;
    });
  }
}

// Several callers at once, each with threads of its own: they share the units and the memory that is kept, no more.
TEST_P(OnThreads, Callers) {
  std::mt19937 rng(1);
  const Tensor q = uniform(rng, {1, 4, 130, 32}, DType::f32), k = uniform(rng, {1, 4, 300, 32}, DType::f32);
  const AttentionOptions options{.mask = Mask::causal()};
  const Results alone = forward_and_backward(q, k, k, options);
  std::vector<Results> found(3);
  std::vector<std::thread> callers;
  for (Results& result : found) {
    callers.emplace_back([&] {
      const Threads threads(2);
      result = forward_and_backward(q, k, k, options);
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const Results& result : found) {
    for (std::size_t i = 0; i < alone.size(); ++i) {
      EXPECT_TRUE(!alone[i].defined() || identical(result[i], alone[i])) << "result " << i;
    }
  }
}

// The first call chooses the unit: two at once choose it together.
TEST(FirstCalls, MayComeTogether) {
  const kernels::Kernels* before = &kernels::active();
  kernels::use(nullptr);
  const kernels::Kernels* found[2] = {};
  std::thread other([&] { found[0] = &kernels::active(); });
  found[1] = &kernels::active();
  other.join();
  EXPECT_EQ(found[0], found[1]);
  kernels::use(before);
}

}  // namespace
}  // namespace attn::test
