// Every step that a module records is its own arithmetic, from the steps before it and the weights.
#include "core/arithmetic.hpp"
#include "modules/helpers.hpp"

namespace attn::test {
namespace {

using Int = std::int64_t;

Doubles parameter(Module& module, const std::string& name) {
  for (const Parameter* p : module.parameters()) {
    if (p->name == name) return Doubles(p->value);
  }
  return {};
}

// Σ x · W, or x · Wᵀ + b of a Linear.
void expect_projections(Recorded& steps, Module& module, const std::string& prefix) {
  const std::string source = steps.has("source") ? "source" : "inputs";
  for (const auto& [step, name, from] : {std::tuple{"queries", "W_query", std::string("inputs")},
                                         {"keys", "W_key", source},
                                         {"values", "W_value", source}}) {
    const Doubles plain = parameter(module, prefix + name), weight = parameter(module, prefix + name + ".weight");
    const Doubles& x = steps[from];
    if (!plain.all.empty()) {
      steps.expect(step, [&](Int, Int i, Int c) {
        return product(
            x.columns, [&](Int k) { return x.at(i, k); }, [&](Int k) { return plain.at(k, c); });
      });
    } else if (!weight.all.empty()) {
      expect_projection(steps, step, from, weight, parameter(module, prefix + name + ".bias"));
    }
  }
  const char* from = steps.has("merged") ? "merged" : "context";
  const Doubles out = parameter(module, prefix + "out_proj.weight");
  if (!out.all.empty()) expect_projection(steps, "output", from, out, parameter(module, prefix + "out_proj.bias"));
}

void expect_given(Recorded& steps, const std::string& step, const Tensor& given) {
  const Doubles x(given);
  steps.expect(step, [&](Int, Int i, Int c) { return Number{x.at(i, c), 0}; });
}

struct Case {
  const char* name;
  ModuleConfig config;
  bool train = false;
};

std::vector<Case> cases() {
  ModuleConfig plain{.d_in = 5, .d_out = 8};
  std::vector<Case> all{{"plain", plain}};
  const auto add = [&](const char* name, bool train, const auto& change) {
    all.push_back({name, plain, train});
    change(all.back().config);
  };
  add("biases", false, [](ModuleConfig& c) { c.qkv_bias = true; });
  add("dropout", true, [](ModuleConfig& c) { c.dropout = 0.4; });
  add("no mask", false, [](ModuleConfig& c) { c.causal = false; });
  add("scale", false, [](ModuleConfig& c) { c.scale = 0.3; });
  add("rope", false, [](ModuleConfig& c) { c.rope = RotaryFrequencies{{1.f, 0.25f}}; });
  add("no out_proj", true, [](ModuleConfig& c) { c.out_proj = false, c.dropout = 0.4; });
  return all;
}

Wiring wiring_of(const ModuleKind& kind, const Case& c, Int head_dim) {
  Wiring w{.scale = kind.name == "simple" ? 1 : 1 / std::sqrt(static_cast<double>(head_dim))};
  if (kind.name == "head") w.scale = 1;
  if (kind.uses.linear && c.config.scale) w.scale = *c.config.scale;
  if (kind.uses.linear && c.train) w.dropout = c.config.dropout;
  w.causal = kind.uses.mask && c.config.causal;
  if (kind.uses.rope && c.config.rope) {
    for (const float rate : c.config.rope->inv_freq) w.rates.push_back(static_cast<double>(rate));
    w.interleaved = c.config.rope->layout == RotaryLayout::interleaved;
    w.turn_factor = c.config.rope->attention_factor;
  }
  return w;
}

void expect_module(Recorded steps, Module& module, const ModuleKind& kind, const Case& c, const std::string& prefix,
                   const Tensor& x, const Tensor& source) {
  expect_given(steps, "inputs", x);
  expect_given(steps, "source", source);
  expect_projections(steps, module, prefix);
  const Wiring w = wiring_of(kind, c, steps.first_of({"queries", "inputs"}).columns);
  expect_turns(steps, "queries", w);
  expect_turns(steps, "keys", w);
  if (kind.name == "average") {
    steps.expect("weights", [](Int, Int i, Int j) {
      const double share = j <= i ? 1 / static_cast<double>(i + 1) : 0;
      return Number{share, kUnit * share};
    });
  } else {
    expect_weights(steps, w);
  }
  expect_contexts(steps, w);
  steps.expect_all_known();
}

TEST(Steps, OfEveryModuleAreTheirOwnArithmetic) {
  for (const ModuleKind& kind : module_kinds()) {
    if (kind.uses.recurrent || kind.uses.latent) continue;  // recurrent_test.cpp, latent_attention_test.cpp
    for (const Case& c : cases()) {
      for (const Int batch : {Int{0}, Int{2}}) {
        SCOPED_TRACE(std::string(kind.name) + ", " + c.name + (batch ? ", batched" : ""));
        ModuleConfig config = c.config;
        if (kind.uses.heads) config.num_heads = 2;
        const auto module = build(std::string(kind.class_name), config, Generator(17));
        if (c.train) module->train();
        const bool crossed = kind.uses.source;
        const Tensor x = batch ? draw({batch, 6, 5}, 3) : draw({6, 5}, 3);
        const Tensor source = batch ? draw({batch, 4, 5}, 4) : draw({4, 5}, 4);
        Trace trace;
        const Tensor z =
            crossed ? dynamic_cast<CrossAttention&>(*module).forward(x, source, &trace) : module->forward(x, &trace);
        z.fill(NAN);  // what a caller does with the result alters no step
        for (Int item = batch ? 0 : -1; item < batch; ++item) {
          const auto text = [&](const Tensor& t) { return item < 0 ? t : t.select(0, item); };
          if (kind.name != "heads") {
            expect_module({trace, "", item}, *module, kind, c, "", text(x), crossed ? text(source) : Tensor{});
            continue;
          }
          Recorded whole(trace, "", item);
          expect_given(whole, "inputs", text(x));
          std::vector<Recorded> heads;
          for (const char* head : {"heads.0.", "heads.1."}) {
            heads.emplace_back(trace, head, item);
            expect_module(heads.back(), *module, kind, c, head, text(x), {});
          }
          whole.expect("merged", [&](Int, Int i, Int column) {
            const Doubles& context = heads[static_cast<std::size_t>(column / 8)]["context"];
            return Number{context.at(i, column % 8), 0};
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace attn::test
