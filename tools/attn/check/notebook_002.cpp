// Notebook 002 (chapter 3): hiding future words, dropout, and from one head to many.
#include <cmath>

#include "attn/reference.hpp"
#include "check/results.hpp"
#include "common/words.hpp"

namespace attn::check {
namespace {

namespace ref = reference;

Tensor dropout(const Tensor& x, DropoutFlavour flavour) {
  Generator rng(123, flavour);
  return ref::dropout(x, rng.dropout_keep(x.shape(), 0.5), 0.5);
}

void masks_and_dropout(Results& out) {
  Generator rng(789);
  SelfAttentionV2 v2({.d_in = 3, .d_out = 2, .layer_order = out.order(LayerOrder::qkv)}, rng);
  Trace steps;
  out.add("v2: all contexts", v2.forward(tool::six_word_embeddings(), &steps));
  const Tensor weights = steps["weights"], scores = steps["scores"];
  const Tensor ones = Tensor::ones({6, 6}), tril = out.tril(6), keep = out.keep(6);
  out.add("v2: weights", weights);
  out.add("ones", ones);
  out.add("mask: tril", tril);
  out.add("mask: weights * tril", ref::mask_zero(weights, keep));
  out.add("mask: renormalised", ref::mask_renormalise(weights, keep));
  out.add("v2: scores", scores);
  out.add("mask: triu", tril.transpose(0, 1));
  // triu(ones, diagonal = 1) = ones - tril
  out.add("mask: triu above the diagonal", ref::add(ones, ref::scale(tril, -1)));
  const Tensor masked = ref::mask_fill(scores, keep);
  const Tensor masked_weights = ref::softmax(ref::scale(masked, 1 / std::sqrt(2.0)));
  out.add("mask: scores with -inf", masked);
  out.add("mask: softmax of the masked scores", masked_weights);

  out.add("dropout: ones before", ones);
  out.add("dropout: ones", dropout(ones, out.flavour(DropoutFlavour::mkl)));
  out.add("dropout: weights", dropout(masked_weights, out.flavour(DropoutFlavour::mkl)));
  out.add("dropout: ones, as the book prints (flavour native)", dropout(ones, out.flavour(DropoutFlavour::native)));
}

void one_head_to_many(Results& out) {
  const Tensor batch = stack(std::vector<Tensor>{tool::six_word_embeddings(), tool::six_word_embeddings()});
  const ModuleConfig one{
      .d_in = 3, .d_out = 2, .context_length = 6, .causal = out.masked(), .layer_order = out.order(LayerOrder::qkv)};
  ModuleConfig two = one;
  two.num_heads = 2;
  out.add_shape("batch.shape", batch);
  const auto add = [&](const std::string& what, Module&& module) {
    const Tensor z = module.forward(batch);
    out.add(what + ": context_vecs", z);
    out.add_shape(what + ": context_vecs.shape", z);
  };
  Generator rng(123);
  add("causal", CausalAttention(one, rng));
  rng.manual_seed(123);
  add("wrapper", MultiHeadAttentionWrapper(two, rng));
  rng.manual_seed(123);
  add("multi-head", MultiHeadAttention(two, rng));
}

void batched_matmul(Results& out) {
  const Tensor first = Tensor::of({{0.2745f, 0.6584f, 0.2775f, 0.8573f},
                                   {0.8993f, 0.0390f, 0.9268f, 0.7388f},
                                   {0.7179f, 0.7058f, 0.9156f, 0.4340f}});
  const Tensor second = Tensor::of({{0.0772f, 0.3565f, 0.1479f, 0.5331f},
                                    {0.4066f, 0.2318f, 0.4545f, 0.9737f},
                                    {0.4606f, 0.5159f, 0.4220f, 0.5786f}});
  const Tensor a = stack(std::vector<Tensor>{first, second}).unsqueeze(0);  // (1, 2, 3, 4)
  out.add("a @ a.transpose(2, 3)", ref::matmul(a, a.transpose(2, 3)));
  out.add("a: first head", ref::matmul(first, first.transpose(0, 1)));
  out.add("a: second head", ref::matmul(second, second.transpose(0, 1)));
}

void gpt2_sizes(Results& out) {
  for (const char* size : {"117M", "1.5B"}) {
    const ModuleConfig config = gpt2_attention(size);
    out.add(std::string("GPT-2 ") + size + ": heads, embedding size",
            Tensor::of({static_cast<float>(config.num_heads), static_cast<float>(config.d_out)}));
  }
}

}  // namespace

void notebook_002(Results& out) {
  masks_and_dropout(out);
  one_head_to_many(out);
  batched_matmul(out);
  gpt2_sizes(out);
}

}  // namespace attn::check
