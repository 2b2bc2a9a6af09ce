// Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1): the keys and values of all heads are made
// of one short vector a token, its latent, and a cache keeps that in their place.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attn/modules.hpp"

namespace attn {

//   queries  q_h = (W_q,h · norm(W_qa · x), its last `rotary` numbers turned by the position)
//   latent   c   = norm(W_a · x)                      r = turned(W_r · x), one for all heads
//   keys     k_h = (W_k,h · c, r)        values v_h = W_v,h · c
//   output   W_o · concat(softmax(q_h · k_hᵀ / √(plain + rotary)) · v_h)
//
// A cache has c and r of each token. Where few tokens follow many, q_h · W_k,h meets c itself, and the weights' sum of
// latents goes through W_v,h after: all heads' queries share one key of latent + rotary numbers, and its value is its
// first part. A longer piece of a prompt makes the keys and values of its text again, which then takes fewer products.
//
// It follows ModuleConfig's d_in, d_out, num_heads, context_length, dropout, qkv_bias (of W_qa, and of W_a and W_r),
// out_bias, causal, rope (of the rotary part), scale, epsilon (of both norms), initialise and precision; it refuses
// what else is set. Parameters have the names and shapes of Hugging Face's DeepSeek-V2: q_a_proj, q_a_layernorm and
// q_b_proj, or q_proj, kv_a_proj_with_mqa, kv_a_layernorm, kv_b_proj, o_proj.
class LatentAttention : public Module {
 public:
  // Throws Error (argument) for sizes that do not fit.
  LatentAttention(const ModuleConfig& config, const LatentSizes& sizes, Generator& rng, std::string_view prefix = {});

  // x is (b, t, d_in) or (t, d_in). The rotary parts turn by the config's rope, if it has one. A trace has
  // AttentionLayer's steps, and before them "compressed", W_a · x, and its norm "latents"; with a latent of the queries
  // "query latents", too.
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override;
  // The rotary parts turn by the table, (t, …) or (b, t, …); an empty one turns nothing.
  virtual Tensor forward(const Tensor& x, const RotaryTable& turns, Trace* trace = nullptr);
  // A decoder's step, as AttentionLayer has it: x (b, t, d_in), or of one item (1, t, d_in), follows what is in the
  // cache, a KVCache of cache_config().
  virtual Tensor forward(const Tensor& x, const RotaryTable& turns, DecoderCache& cache,
                         std::optional<std::int64_t> item = {});
  Gradient backward(const Tensor& dz) override;
  std::vector<Parameter*> parameters() override;

  // As AttentionLayer has it: x (1, t, d_in) holds several texts.
  void set_texts(Tensor starts) { starts_ = std::move(starts); }
  // Returns the config of a cache for so many texts.
  virtual KVCacheConfig cache_config(std::int64_t batch, DType dtype = DType::f32) const;
  const ModuleConfig& config() const noexcept { return config_; }
  const LatentSizes& sizes() const noexcept { return sizes_; }

 private:
  struct Saved;  // a forward pass, as backward() needs it
  struct Heads {
    Tensor q, k, v;  // (b, heads, t, …)
  };

  // Is told of a step, (b, t, …), and gives it back, as it was edited.
  using Told = std::function<Tensor(const char* name, const Tensor& t)>;
  Tensor queries(const Tensor& x, DType kept, Tensor* low = nullptr, const Told& told = {});
  Tensor latents(const Tensor& x, DType kept, const Told& told = {});
  Heads expanded(const Tensor& q, const Tensor& latents, const Tensor& rotary, DType kept) const;
  Tensor head_rows(std::int64_t head, std::int64_t first, std::int64_t count) const;
  Tensor absorbed(const Tensor& q, const DecoderCache& cache, std::optional<std::int64_t> item, DType kept) const;
  AttentionOptions options(Align align) const;

  ModuleConfig config_;
  LatentSizes sizes_;
  Generator rng_;
  Tensor starts_;
  std::unique_ptr<Linear> query_down_, query_up_, down_, up_, out_;  // query_up_ alone without a query latent
  std::unique_ptr<Norm> query_norm_, norm_;
  std::shared_ptr<Saved> saved_;
};

// Returns a config's `latents`, filled in where they are 0: values and plain parts of d_out / num_heads numbers,
// latents of half of d_out and at least 2, and a rotary part as long as the config's rope, where it has one. Throws
// Error (argument) where d_out is no multiple of num_heads.
LatentSizes latent_sizes(const ModuleConfig& config);

// Makes the module for models and for the list of modules, whose sizes of 0 become those of latent_sizes(). The library
// in a page (src/web) has none, and refuses here.
std::unique_ptr<LatentAttention> make_latent_attention(const ModuleConfig& config, const LatentSizes& sizes,
                                                       Generator& rng, std::string_view prefix);

}  // namespace attn
