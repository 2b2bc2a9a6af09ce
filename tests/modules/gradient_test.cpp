// Gradients of every module with a backward pass, against central differences of Σ z · g. The modules are
// float32: the step is wide and the tolerance that of its rounding.
#include "modules/helpers.hpp"

namespace attn::test {
namespace {

constexpr double kStep = 5e-3, kTolerance = 4e-4;

void expect_module_gradients(Module& module, const Tensor& x, const std::function<Tensor()>& forward,
                             const std::function<Tensor(const Tensor&)>& back) {
  const Tensor g = draw(forward().shape(), 77);
  const Tensor dx = back(g);
  const auto loss = [&] { return dot(forward(), g); };
  expect_gradient(dx, x, loss, kStep, kTolerance, "dx");
  for (Parameter* p : module.parameters()) expect_gradient(p->grad, p->value, loss, kStep, kTolerance, p->name);
}

TEST(ModuleGradients, EveryModuleWithAndWithoutABatch) {
  for (const std::string& name : kTrainable) {
    for (const Shape& shape : {Shape{4, 3}, Shape{2, 4, 3}}) {
      for (const bool bias : {false, true}) {
        SCOPED_TRACE(name + " on " + shape.str());
        const auto module = build(name, {.d_in = 3, .d_out = 4, .num_heads = 2, .qkv_bias = bias}, seeded());
        const Tensor x = draw(shape);
        expect_module_gradients(
            *module, x, [&] { return module->forward(x); }, [&](const Tensor& g) { return backward(*module, g); });
      }
    }
  }
}

TEST(ModuleGradients, Linear) {
  Generator rng(1);
  Linear linear(3, 4, true, rng);
  const Tensor x = draw({2, 5, 3});
  expect_module_gradients(
      linear, x, [&] { return linear.forward(x); }, [&](const Tensor& g) { return linear.backward(g, x); });
}

// Runs of rows are summed side by side, the last of them short.
TEST(ModuleGradients, ABiassGradientIsTheSumOfAllRows) {
  for (const std::int64_t rows : {1, 255, 256, 257, 700}) {
    Generator rng(1);
    Linear linear(3, 5, true, rng);
    const Tensor x = draw({rows, 3}), dy = draw({rows, 5}, 3);
    linear.forward(x);
    linear.backward(dy, x);
    for (std::int64_t c = 0; c < 5; ++c) {
      double sum = 0;
      for (std::int64_t r = 0; r < rows; ++r) sum += dy.at({r, c});
      EXPECT_NEAR(linear.bias.grad.at({c}), sum, 1e-4) << rows << " rows, column " << c;
    }
  }
}

// Checks the gradients of cross attention: those of its parameters and of both inputs.
template <class Forward>
void expect_gradients(CrossAttention& cross, const Tensor& x, const Tensor& source, const Forward& forward) {
  const Tensor g = draw(forward().shape(), 77);
  const auto grad = cross.backward(g);
  const auto loss = [&] { return dot(forward(), g); };
  expect_gradient(grad.x, x, loss, kStep, kTolerance, "dx");
  expect_gradient(grad.source, source, loss, kStep, kTolerance, "dsource");
  for (Parameter* p : cross.parameters()) expect_gradient(p->grad, p->value, loss, kStep, kTolerance, p->name);
}

TEST(ModuleGradients, CrossAttentionFromAnotherSource) {
  for (const auto& [tq, tk] : {std::pair<std::int64_t, std::int64_t>{3, 5}, {5, 2}}) {
    Generator rng(1);
    CrossAttention cross({.d_in = 3, .d_out = 4, .num_heads = 2, .qkv_bias = true}, rng);
    const Tensor x = draw({2, tq, 3}, 1), source = draw({2, tk, 3}, 2);
    const auto forward = [&] { return cross.forward(x, source, nullptr); };
    expect_gradients(cross, x, source, forward);
  }
}

TEST(ModuleGradients, ThroughDropoutOfEveryFlavour) {
  // The same seed before each pass gives each the same mask.
  for (const auto flavour : {DropoutFlavour::mkl, DropoutFlavour::native, DropoutFlavour::philox}) {
    for (const std::string name : {"CausalAttention", "MultiHeadAttention", "MultiHeadAttentionWrapper"}) {
      SCOPED_TRACE(name + " " + std::string(attn::name(flavour)));
      Generator rng(1, flavour);
      const auto module = build(name, {.d_in = 3, .d_out = 4, .dropout = 0.4, .num_heads = 2}, rng);
      module->train();
      const Tensor x = draw({2, 4, 3});
      const auto forward = [&] {
        rng.manual_seed(5);
        return module->forward(x);
      };
      expect_module_gradients(*module, x, forward, [&](const Tensor& g) { return backward(*module, g); });
    }
  }
}

TEST(ModuleGradients, CrossAttentionThroughDropout) {
  for (const auto flavour : {DropoutFlavour::mkl, DropoutFlavour::native, DropoutFlavour::philox}) {
    SCOPED_TRACE(attn::name(flavour));
    Generator rng(1, flavour);
    CrossAttention cross({.d_in = 3, .d_out = 4, .dropout = 0.3, .num_heads = 2}, rng);
    cross.train();
    const Tensor x = draw({2, 4, 3}, 1), source = draw({2, 6, 3}, 2);
    const auto forward = [&] {
      rng.manual_seed(9);
      return cross.forward(x, source, nullptr);
    };
    expect_gradients(cross, x, source, forward);
  }
}

TEST(ModuleGradients, AddUpUntilZeroed) {
  for (const std::string& name : kTrainable) {
    SCOPED_TRACE(name);
    const auto module = build(name, {.d_in = 3, .d_out = 4, .num_heads = 2}, seeded());
    const Tensor x = draw({4, 3}), g = draw(module->forward(x).shape(), 9);
    backward(*module, g);
    std::vector<Tensor> once;
    for (const Parameter* p : module->parameters()) once.push_back(p->grad.clone());
    backward(*module, g);
    const auto all = module->parameters();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto twice = values(all[i]->grad), first = values(once[i]);
      for (std::size_t j = 0; j < first.size(); ++j) EXPECT_EQ(twice[j], 2 * first[j]) << all[i]->name;
    }
    module->zero_grad();
    for (const Parameter* p : module->parameters()) EXPECT_FALSE(p->grad.defined());
    backward(*module, g);
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(identical(all[i]->grad, once[i]));
  }
}

TEST(ModuleGradients, NoneAreKeptUnderNoGrad) {
  for (const ModuleKind& kind : module_kinds()) {
    SCOPED_TRACE(kind.class_name);
    Generator rng = seeded();
    const auto module = kind.make({.d_in = 4, .d_out = 4, .num_heads = kind.uses.heads ? 2 : 1}, rng);
    const Tensor x = draw({5, 4}), z = module->forward(x);
    {
      const NoGrad no_grad;
      EXPECT_FALSE(grad_enabled());
      EXPECT_TRUE(identical(module->forward(x), z));
      { const NoGrad within; }
      EXPECT_FALSE(grad_enabled());
    }
    EXPECT_TRUE(grad_enabled());
    EXPECT_THROW(backward(*module, Tensor::ones(z.shape())), Error);
  }
}

// Nothing is read behind a weight that was replaced by a smaller one since the forward pass, nor before it.
TEST(ModuleGradients, RefuseASmallerWeightThanTheForwardPassHad) {
  for (const ModuleKind& kind : module_kinds()) {
    Generator rng = seeded();
    ModuleConfig config{.d_in = 4, .d_out = 4, .num_heads = kind.uses.heads ? 2 : 1, .qkv_bias = kind.uses.linear};
    if (kind.uses.linear && kind.class_name != "LatentAttention") config.query_key_norm = QueryKeyNorm::each_head;
    const auto module = kind.make(config, rng);
    for (Parameter* p : module->parameters()) {
      SCOPED_TRACE(std::string(kind.class_name) + ", " + p->name);
      const Tensor x = draw({5, 4}), z = module->forward(x), whole = p->value;
      p->value = whole.slice(0, 0, whole.size(0) / 2).clone();
      const bool is_read = !p->name.ends_with(".bias");  // a bias's gradient needs no values
      if (is_read) {
        EXPECT_THROW(backward(*module, Tensor::ones(z.shape())), Error);
      }
      EXPECT_THROW(module->forward(x), Error);
      p->value = whole;
    }
  }
}

TEST(ModuleGradients, BackwardNeedsAForwardAndTheOutputsShape) {
  for (const std::string& name : kTrainable) {
    SCOPED_TRACE(name);
    const auto module = build(name, {.d_in = 3, .d_out = 4, .num_heads = 2}, seeded());
    const Shape z_shape = build(name, {.d_in = 3, .d_out = 4, .num_heads = 2}, seeded())->forward(draw({5, 3})).shape();
    expect_error(Error::Kind::argument, {"forward() before backward()"},
                 [&] { backward(*module, Tensor::ones(z_shape)); });
    module->forward(draw({5, 3}));
    for (const Shape& shape : {Shape{4, z_shape.back()}, Shape{5, 3}, Shape{2, 5, z_shape.back()}, Shape{5}}) {
      EXPECT_THROW(backward(*module, Tensor::ones(shape)), Error) << shape.str();
    }
    for (const DType dtype : {DType::f64, DType::i64}) {
      expect_error(Error::Kind::dtype, {"dz of dtype float32", std::string(attn::name(dtype))},
                   [&] { backward(*module, Tensor::ones(z_shape, dtype)); });
    }
    EXPECT_THROW(backward(*module, {}), Error);
    EXPECT_THROW(backward(*module, Tensor::ones(z_shape, DType::i64)), Error);
    for (const Parameter* p : module->parameters()) EXPECT_FALSE(p->grad.defined()) << p->name << " after an error";
    EXPECT_EQ(backward(*module, Tensor::ones(z_shape)).shape(), (Shape{5, 3}));
  }
}

}  // namespace
}  // namespace attn::test
