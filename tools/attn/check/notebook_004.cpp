// Notebook 004 (chapter 3): five words, trainable weights, every key and value printed.
#include "check/results.hpp"

namespace attn::check {

void notebook_004(Results& out) {
  const Tensor x = Tensor::of({{0.43f, 0.15f, 0.89f},    // wars
                               {0.55f, 0.87f, 0.66f},    // not
                               {0.57f, 0.85f, 0.64f},    // make
                               {0.22f, 0.58f, 0.33f},    // one
                               {0.02f, 0.81f, 0.52f}});  // great
  Generator rng(123);
  SelfAttentionV1 v1(3, 2, rng);
  Trace steps;
  const Tensor z = v1.forward(x, &steps);
  const Tensor weights_2 = steps["weights"].select(0, 1);
  double weight_sum = 0;
  for (std::int64_t j = 0; j < 5; ++j) weight_sum += weights_2.at({j});

  out.add("d_in", static_cast<double>(x.size(1)));
  out.add("d_out", static_cast<double>(z.size(1)));
  out.add("query 2", steps["queries"].select(0, 1));
  out.add_shape("keys.shape", steps["keys"]);
  out.add_shape("values.shape", steps["values"]);
  out.add("keys", steps["keys"]);
  out.add("values", steps["values"]);
  out.add("score 22", steps["scores"].at({1, 1}));
  out.add("query 2: length", static_cast<double>(steps["queries"].size(1)));
  out.add("number of keys", static_cast<double>(steps["keys"].size(0)));
  out.add("key length", static_cast<double>(steps["keys"].size(1)));
  out.add("scores of query 2", steps["scores"].select(0, 1));
  out.add("weights of query 2", weights_2);
  out.add("weights of query 2: their sum", weight_sum);
  out.add("context of query 2", steps["context"].select(0, 1));
  out.add("v1: all contexts", z);
}

}  // namespace attn::check
