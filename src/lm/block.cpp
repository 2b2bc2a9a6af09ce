#include <string>

#include "attn/gpt.hpp"
#include "core/rows.hpp"
#include "ops/dense.hpp"

namespace attn {
namespace {

ModuleConfig attention_config(const GPTConfig& config) {
  ModuleConfig c;
  c.d_in = c.d_out = config.width;
  c.num_heads = config.heads;
  c.context_length = config.context_length;
  c.dropout = config.dropout;
  c.qkv_bias = true;
  c.precision = config.precision;
  c.initialise = false;
  return c;
}

}  // namespace

Block::Block(const GPTConfig& config, Generator& rng, std::string_view prefix)
    : ln_1(config.width, config.epsilon, std::string(prefix) + "ln_1"),
      attention(attention_config(config), rng),
      attention_dropout(config.dropout, rng),
      ln_2(config.width, config.epsilon, std::string(prefix) + "ln_2"),
      feed_forward(config.width, config.gelu, std::string(prefix) + "mlp."),
      feed_forward_dropout(config.dropout, rng) {
  feed_forward.c_fc.precision = feed_forward.c_proj.precision = config.precision;
  for (Parameter* p : attention.parameters()) p->name = std::string(prefix) + "attn." + p->name;
}

Tensor Block::forward(const Tensor& x, Trace* trace) {
  const DType kept = trace ? DType::f32 : stored(feed_forward.c_fc.precision);
  Tensor attended;
  {
    const Trace::Scope scope(trace, "attn");
    attended = attention_dropout.forward(attention.forward(ln_1.forward(x, kept), trace));
  }
  add_in_place(attended, x);
  const Tensor y = feed_forward_dropout.forward(feed_forward.forward(ln_2.forward(attended, kept)));
  add_in_place(y, attended);
  if (trace) trace->record("output", y);
  return y;
}

Module::Gradient Block::backward(const Tensor& dy) {
  // y = attended + dropout(mlp(ln_2(attended)))
  const Tensor d_normal = feed_forward.backward(feed_forward_dropout.backward(dy).x, ln_2.output());
  const Tensor d_attended = ln_2.backward(d_normal, dy);
  // attended = x + dropout(attention(ln_1(x)))
  return {ln_1.backward(attention.backward(attention_dropout.backward(d_attended).x).x, d_attended), {}};
}

std::vector<Parameter*> Block::parameters() {
  std::vector<Parameter*> all;
  for (Module* part : std::initializer_list<Module*>{&ln_1, &attention, &ln_2, &feed_forward}) {
    for (Parameter* p : part->parameters()) all.push_back(p);
  }
  return all;
}

void Block::train(bool on) {
  for (Module* part : std::initializer_list<Module*>{&attention, &attention_dropout, &feed_forward_dropout}) {
    part->train(on);
  }
  Module::train(on);
}

void Block::set_sequence(const std::shared_ptr<SequencePart>& part) {
  attention.set_sequence(part);
  attention_dropout.set_sequence(part);
  feed_forward_dropout.set_sequence(part);
}

}  // namespace attn
