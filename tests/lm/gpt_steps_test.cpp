// Every step that a GPT records is its own arithmetic, from the steps before it and the weights.
#include "core/arithmetic.hpp"
#include "lm/gpt_double.hpp"

namespace attn::test {
namespace {

using Int = std::int64_t;

Tensor weight(GPT& model, const std::string& name) {
  for (const Parameter* p : model.parameters()) {
    if (p->name == name) return p->value.to(DType::f64);
  }
  throw std::out_of_range(name);
}

Tensor linear(GPT& model, const Tensor& x, const std::string& name) {
  const Doubles in(x), w(weight(model, name + ".weight")), b(weight(model, name + ".bias"));
  Tensor y = Tensor::empty({in.rows, w.rows}, DType::f64);
  for (Int i = 0; i < in.rows; ++i) {
    for (Int o = 0; o < w.rows; ++o) {
      y.set({i, o}, product(
                        in.columns, [&](Int k) { return in.at(i, k); }, [&](Int k) { return w.at(o, k); }, b[o])
                        .value);
    }
  }
  return y;
}

Tensor norm(GPT& model, const Tensor& x, const std::string& name) {
  return layer_norm_double(x, weight(model, name + ".weight"), weight(model, name + ".bias"), model.config().epsilon);
}

Tensor sum(const Tensor& a, const Tensor& b) {
  Tensor y = a.clone();
  for (Int i = 0; i < y.numel(); ++i) y.data<double>()[i] += b.data<double>()[i];
  return y;
}

void expect_near(Recorded& steps, const std::string& step, const Tensor& wanted) {
  const Doubles all(wanted);
  double largest = 0;
  for (const double x : all.all) largest = std::max(largest, std::fabs(x));
  steps.expect(step, [&](Int, Int i, Int c) { return Number{all.at(i, c), 3e-6 * largest}; });
}

TEST(GPTSteps, AreTheirOwnArithmetic) {
  Generator rng(5);
  GPT model({.vocab_size = 11, .context_length = 8, .layers = 3, .heads = 2, .width = 12}, rng);
  for (Parameter* p : model.parameters()) p->value = rng.randn(p->value.shape());
  const Tensor ids = integers({1, 7, 3, 0, 10, 3, 5, 5, 2, 9, 4, 8}, {2, 6});
  Trace trace;
  model.forward(ids, &trace).fill(NAN);
  for (Int item = 0; item < 2; ++item) {
    Tensor x = Tensor::empty({6, 12}, DType::f64);
    for (Int t = 0; t < 6; ++t) {
      const auto id = static_cast<Int>(ids.at({item, t}));
      for (Int c = 0; c < 12; ++c) x.set({t, c}, model.embedding.value.at({id, c}) + model.positions.value.at({t, c}));
    }
    for (int layer = 0; layer < 3; ++layer) {
      const std::string name = "h." + std::to_string(layer) + ".";
      SCOPED_TRACE("text " + std::to_string(item) + ", " + name);
      Recorded attention(trace, name + "attn.", item);
      expect_near(attention, "inputs", norm(model, x, name + "ln_1"));
      for (const auto& [step, matrix] : {std::pair{"queries", "W_query"}, {"keys", "W_key"}, {"values", "W_value"}}) {
        const std::string of = name + "attn." + matrix;
        expect_projection(attention, step, "inputs", Doubles(weight(model, of + ".weight")),
                          Doubles(weight(model, of + ".bias")));
      }
      Wiring w{.scale = 1 / std::sqrt(6.0)};
      w.causal = true;
      expect_weights(attention, w);
      expect_contexts(attention, w);
      expect_projection(attention, "output", "merged", Doubles(weight(model, name + "attn.out_proj.weight")),
                        Doubles(weight(model, name + "attn.out_proj.bias")));
      const Tensor added = trace[name + "attn.output"].select(0, item).to(DType::f64), attended = sum(x, added);
      expect_near(attention, "added", added);
      attention.expect_all_known();
      const Tensor inner = linear(model, norm(model, attended, name + "ln_2"), name + "mlp.c_fc");
      const Tensor fed = linear(model, gelu_double(inner, model.config().gelu), name + "mlp.c_proj");
      Recorded block(trace, name, item);
      expect_near(block, "output", sum(attended, fed));
      x = trace[name + "output"].select(0, item).to(DType::f64);
    }
  }
}

}  // namespace
}  // namespace attn::test
