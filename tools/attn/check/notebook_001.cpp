// Notebook 001 (chapter 3): the same again, with layers drawn key, query, value; and the mask that it forgot.
#include "attn/reference.hpp"
#include "check/results.hpp"
#include "common/words.hpp"

namespace attn::check {
namespace {

namespace ref = reference;

void simplified_001(Results& out) {
  const Tensor x = tool::six_word_embeddings();
  Trace steps;
  const Tensor z = SimplifiedSelfAttention().forward(x, &steps);
  const Tensor scores_2 = ref::scores_by_loop(x.slice(0, 1, 2), x).select(0, 0);
  out.add("scores of query 2, by loop", scores_2);
  out.add("score 12 as a plain sum", scores_2.at({0}));
  out.add("weights of query 2", ref::softmax(scores_2));
  out.add("context of query 2", ref::weighted_sum(ref::softmax(scores_2).unsqueeze(0), x).select(0, 0));
  out.add("scores", steps["scores"]);
  out.add("weights", steps["weights"]);
  out.add("weights, again", ref::softmax(ref::scores_by_loop(x, x)));
  out.add_shape("weights.shape", steps["weights"]);
  out.add_shape("inputs.shape", x);
  out.add("all contexts", z);
}

void trainable_by_rand(Results& out) {
  const Tensor x = tool::six_word_embeddings();
  Generator rng(123);
  SelfAttentionV1 v1(3, 2, rng);
  Trace steps;
  const Tensor z = v1.forward(x, &steps);
  out.add_shape("rand: inputs[1].shape", x.select(0, 1));
  out.add_shape("rand: W_query.shape", v1.W_query.value);
  out.add_shape("rand: keys.shape", steps["keys"]);
  out.add("rand: keys.T", steps["keys"].transpose(0, 1));
  out.add_shape("rand: scores of query 2, shape", steps["scores"].select(0, 1));
  out.add("rand: d_k", static_cast<double>(steps["keys"].size(1)));
  out.add("rand: weights of query 2", steps["weights"].select(0, 1));
  out.add_shape("rand: weights of query 2, shape", steps["weights"].select(0, 1));
  out.add_shape("rand: values.shape", steps["values"]);
  out.add_shape("rand: context of query 2, shape", steps["context"].select(0, 1));
  out.add_shape("rand: queries.shape", steps["queries"]);
  out.add_shape("rand: keys.shape, again", steps["keys"]);
  out.add("rand: scores", steps["scores"]);
  out.add("rand: weights", steps["weights"]);
  out.add_shape("rand: values.shape, again", steps["values"]);
  out.add_shape("rand: contexts.shape", z);
}

void linear_and_causal(Results& out, const Tensor& batch) {
  const LayerOrder order = out.order(LayerOrder::kqv);
  Generator rng(123);
  SelfAttentionV2 linear({.d_in = 3, .d_out = 2, .layer_order = order}, rng);
  out.add("linear kqv: all contexts", linear.forward(tool::six_word_embeddings()));

  // The notebook fills a copy of another tensor with -inf, so that nothing is masked.
  rng.manual_seed(123);
  CausalAttention unmasked({.d_in = 3, .d_out = 2, .context_length = 6, .causal = false, .layer_order = order}, rng);
  Trace steps;
  const Tensor z = unmasked.forward(batch, &steps);
  out.add_shape("causal: batch.shape", batch);
  out.add_shape("causal: queries.shape", steps["queries"]);
  out.add_shape("causal: keys.T.shape", steps["keys"].transpose(0, 2));
  out.add("causal: context_vecs, printed without the mask", z);
  out.add_shape("causal: context_vecs.shape", z);

  rng.manual_seed(123);
  CausalAttention causal({.d_in = 3, .d_out = 2, .context_length = 6, .causal = out.masked(), .layer_order = order},
                         rng);
  out.add("causal: context_vecs with the mask that the notebook left out", causal.forward(tool::six_word_embeddings()));
}

void heads(Results& out, const Tensor& batch) {
  const LayerOrder order = out.order(LayerOrder::qkv);
  const ModuleConfig config{
      .d_in = 3, .d_out = 2, .context_length = 6, .num_heads = 2, .causal = out.masked(), .layer_order = order};
  ModuleConfig by_hand = config;
  by_hand.causal = false;
  by_hand.out_proj = false;
  Generator rng(123);
  out.add("two heads: context_vecs", MultiHeadAttention(by_hand, rng).forward(batch));
  out.add_shape("two heads: batch.shape", batch);

  rng.manual_seed(123);
  const Tensor z = MultiHeadAttention(config, rng).forward(batch);
  out.add("multi-head: context_vecs", z);
  out.add_shape("multi-head: context_vecs.shape", z);
}

}  // namespace

void notebook_001(Results& out) {
  const Tensor batch = stack(std::vector<Tensor>{tool::six_word_embeddings(), tool::six_word_embeddings()});
  simplified_001(out);
  trainable_by_rand(out);
  linear_and_causal(out, batch);
  heads(out, batch);
}

}  // namespace attn::check
