#include "attn/causal_lm.hpp"

#include "attn/error.hpp"
#include "core/rows.hpp"
#include "lm/head.hpp"
#include "ops/dense.hpp"
#include "ops/input.hpp"
#include "ops/weights.hpp"

namespace attn {

Tensor CausalLM::forward(const Tensor& ids, Trace* trace) {
  hidden_ = hidden(ids, trace);
  const Held held(weights_.get(), head_part());
  const Head head = output_head();
  const Tensor logits = logits_of(head, hidden_);
  logits_ = head.softcap > 0 ? logits : Tensor{};
  d_hidden_ = {};
  return ids.rank() == 1 ? logits.select(0, 0) : logits;
}

Module::Gradient CausalLM::backward(const Tensor& d_logits) {
  require_forward(op_, hidden_.defined());
  const Tensor dy = d_logits.rank() == 2 ? d_logits.unsqueeze(0) : d_logits;
  if (dy.rank() != 3 || dy.size(-1) != head_weight().value.size(0) || row_count(dy) != ids_.numel()) {
    throw Error(Error::Kind::shape, op_, "d_logits of the logits' shape", d_logits.shape().str());
  }
  HeadGradient grad;
  {
    const Held held(weights_.get(), head_part(), norm_part());
    grad = logits_backward(output_head(), dy, logits_, hidden_);
  }
  accumulate(head_weight(), grad.weight);
  hidden_backward(grad.hidden, {});
  return {};
}

double CausalLM::loss(const Tensor& ids, const Tensor& targets) { return cross_entropy_of(ids, targets, true); }

double CausalLM::evaluate(const Tensor& ids, const Tensor& targets) { return cross_entropy_of(ids, targets, false); }

double CausalLM::cross_entropy_of(const Tensor& ids, const Tensor& targets, bool with_gradient) {
  if (!(ids.shape() == targets.shape())) {
    throw Error(Error::Kind::shape, op_, "targets of the shape of ids " + ids.shape().str(), targets.shape().str());
  }
  d_hidden_ = d_head_ = logits_ = {};
  hidden_ = hidden(ids, nullptr);
  HeadLoss found;
  {
    const Held held(weights_.get(), head_part());
    if (with_gradient) held.also(norm_part());
    if (with_gradient && block_count() > 0) held.also(block_part(block_count() - 1));
    found = head_loss(output_head(), hidden_, targets, with_gradient);
  }
  targets_ = found.count;
  d_hidden_ = found.gradient.hidden, d_head_ = found.gradient.weight;
  return found.loss;
}

void CausalLM::backward(double factor, const GradientsReady& ready) {
  if (!d_hidden_.defined()) throw Error(Error::Kind::argument, op_, "loss() before backward()", "no loss");
  scale_in_place(d_hidden_, factor);
  scale_in_place(d_head_, factor);
  accumulate(head_weight(), d_head_);
  if (ready && !tied()) ready(std::vector<Parameter*>{&head_weight()});
  hidden_backward(d_hidden_, ready);
  d_hidden_ = d_head_ = {};
}

std::vector<Parameter*> CausalLM::parameters() {
  std::vector<Parameter*> all;
  for (const std::vector<Parameter*>& part : weight_parts()) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace attn
