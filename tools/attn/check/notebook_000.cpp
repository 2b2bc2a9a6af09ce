// Notebook 000 (the book's chapter 3): from dot products to causal self-attention.
#include <cmath>

#include "attn/reference.hpp"
#include "check/results.hpp"
#include "common/words.hpp"

namespace attn::check {
namespace {

namespace ref = reference;

double sum(const Tensor& row) {
  double total = 0;
  for (std::int64_t i = 0; i < row.numel(); ++i) total += row.at({i});
  return total;
}

Tensor row_sums(const Tensor& x) { return ref::matmul(x, Tensor::ones({x.size(1), 1})).view({x.size(0)}); }

void simplified_000(Results& out) {
  const Tensor x = tool::six_word_embeddings();
  Trace steps;
  SimplifiedSelfAttention().forward(x, &steps);

  const Tensor scores_2 = ref::scores_by_loop(x.slice(0, 1, 2), x).select(0, 0);
  out.add("scores of query 2, by loop", scores_2);
  const Tensor by_sum = ref::normalise_by_sum(scores_2), naive = ref::softmax_naive(scores_2),
               stable = ref::softmax(scores_2);
  out.add("weights of query 2, by sum", by_sum);
  out.add("weights of query 2, by sum: their sum", sum(by_sum));
  out.add("weights of query 2, naive softmax", naive);
  out.add("weights of query 2, naive softmax: their sum", sum(naive));
  out.add("weights of query 2, stable softmax", stable);
  out.add("weights of query 2, stable softmax: their sum", sum(stable));
  const Tensor context_2 = ref::weighted_sum(stable.unsqueeze(0), x).select(0, 0);
  out.add("context of query 2", context_2);
  out.add("plot: the seventh point, journey-context", context_2);

  out.add("scores, by loop", ref::scores_by_loop(x, x));
  out.add("scores, by matmul", steps["scores"]);
  out.add("weights", steps["weights"]);
  // The notebook adds up the six weights as they were printed.
  double row_2 = 0;
  for (std::int64_t j = 0; j < 6; ++j) row_2 += std::round(steps["weights"].at({1, j}) * 1e4) / 1e4;
  out.add("row 2 sum", row_2);
  out.add("all row sums", row_sums(steps["weights"]));
  out.add("all contexts", steps["context"]);
  out.add("previous context of query 2", steps["context"].select(0, 1));
}

void trainable_v1(Results& out) {
  const Tensor x = tool::six_word_embeddings();
  Generator rng(123);
  SelfAttentionV1 v1(3, 2, rng);
  Trace steps;
  const Tensor z = v1.forward(x, &steps);
  const Tensor query_2 = steps["queries"].select(0, 1);
  out.add("v1: query 2", query_2);
  out.add_shape("v1: keys.shape", steps["keys"]);
  out.add_shape("v1: values.shape", steps["values"]);
  out.add("v1: score 22", steps["scores"].at({1, 1}));
  out.add("v1: scores of query 2", steps["scores"].select(0, 1));
  out.add("v1: weights of query 2", steps["weights"].select(0, 1));
  out.add("v1: context of query 2", steps["context"].select(0, 1));
  out.add("v1: all contexts", z);
  out.add("v1: second row, as the text quotes it", z.select(0, 1));
}

void trainable_v2_and_masks(Results& out) {
  const Tensor x = tool::six_word_embeddings();
  Generator rng(789);
  SelfAttentionV2 v2({.d_in = 3, .d_out = 2, .layer_order = out.order(LayerOrder::qkv)}, rng);
  Trace steps;
  out.add("v2: all contexts", v2.forward(x, &steps));
  const Tensor weights = steps["weights"], keep = out.keep(6);
  out.add("v2: weights", weights);
  out.add("mask: tril", out.tril(6));
  out.add("mask: weights * tril", ref::mask_zero(weights, keep));
  out.add("mask: renormalised", ref::mask_renormalise(weights, keep));
  const Tensor masked = ref::mask_fill(steps["scores"], keep);
  out.add("mask: scores with -inf", masked);
  out.add("mask: softmax of the masked scores", ref::softmax(ref::scale(masked, 1 / std::sqrt(2.0))));
}

}  // namespace

void notebook_000(Results& out) {
  simplified_000(out);
  trainable_v1(out);
  trainable_v2_and_masks(out);
}

}  // namespace attn::check
