// Keys and values of the tokens so far, kept between the steps of a decoder (Pope et al. 2022, "Efficiently Scaling
// Transformer Inference", section 2.1; pages: Kwon et al. 2023, "PagedAttention", section 4.1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "attn/attention.hpp"
#include "attn/tensor.hpp"

namespace attn {

struct KVCacheConfig {
  std::int64_t batch = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 1;
  std::int64_t value_dim = 0;  // 0 = head_dim
  // How elements are stored: f32, bf16, f16, or i8 with a float32 scale for each row (one token of one head, keys and
  // values apart): symmetric, the row's largest magnitude becomes 127, so that an element errs by 1/254 of it at most,
  // or by 2^-127 where that is more.
  DType dtype = DType::f32;
  // The number of tokens of a page. Pages come from a pool that all items share, nothing is ever moved, and what
  // truncate() frees is used again. With 0 each batch item's rows lie together instead, and are moved to a place twice
  // as large when theirs is full.
  std::int64_t page_size = 0;
  std::int64_t capacity = 0;  // make room for so many tokens an item at once; more fit all the same
  // Values are the first value_dim numbers of the keys, as in latent attention (attn/latent_attention.hpp): the cache
  // keeps keys alone, and append() takes an undefined v.
  bool values_in_keys = false;
};

// Modules and decoders ask this of the keys and values of the tokens so far. A KVCache has all of them;
// attn::distributed::CutCache (attn/cut_cache.hpp) has some on each rank.
class DecoderCache {
 public:
  virtual ~DecoderCache() = default;

  virtual const KVCacheConfig& config() const = 0;
  virtual std::int64_t length(std::int64_t item) const = 0;  // tokens
  virtual std::size_t bytes() const = 0;                     // of the memory held here
  // As KVCache has them.
  virtual void append(const Tensor& k, const Tensor& v) = 0;
  virtual void append(std::int64_t item, const Tensor& k, const Tensor& v) = 0;
  virtual void truncate(std::int64_t item, std::int64_t length) = 0;
  virtual std::int64_t forget(std::int64_t item, std::int64_t tokens) = 0;
  // attention() of q to all items, or to one: see below.
  virtual AttentionResult attend(const Tensor& q, std::optional<std::int64_t> item,
                                 const AttentionOptions& options) const = 0;

  std::int64_t max_length() const;     // of all items
  Tensor lengths() const;              // int64 (b)
  void truncate(std::int64_t length);  // every item that has as many

 protected:
  DecoderCache() = default;
  DecoderCache(const DecoderCache&) = default;
  DecoderCache& operator=(const DecoderCache&) = default;
};

// Makes the cache of a decoder's layer.
using MakeCache = std::function<std::unique_ptr<DecoderCache>(const KVCacheConfig&)>;
// By `make`, or a KVCache where that is empty.
std::unique_ptr<DecoderCache> make_cache(const KVCacheConfig& config, const MakeCache& make);

// A cache of keys and values. Its batch items grow independently. Copies are made by clone() only. Calls that do not
// change a cache may run at the same time. Throws Error (argument) for a config that does not fit, for an item or a
// length that is not there, and for a cache that was moved from.
class KVCache : public DecoderCache {
 public:
  explicit KVCache(const KVCacheConfig& config);
  KVCache(KVCache&& other) noexcept;
  KVCache& operator=(KVCache&& other) noexcept;
  ~KVCache() override;
  KVCache clone() const;

  // Adds t tokens to every item: k (b, hkv, t, d), v (b, hkv, t, dv), of any floating dtypes and strides. A finite
  // value past the stored dtype's range becomes its largest; in int8 a row that is not finite becomes NaN. Throws
  // Error (shape, dtype) or std::bad_alloc, and then the cache is as before.
  void append(const Tensor& k, const Tensor& v) override;
  // Adds tokens to one item: k (hkv, t, d), v (hkv, t, dv).
  void append(std::int64_t item, const Tensor& k, const Tensor& v) override;
  // Forgets the tokens from `length` on, of one item or of every item that has as many.
  void truncate(std::int64_t item, std::int64_t length) override;
  using DecoderCache::truncate;
  void clear();
  // Forgets an item's first tokens, which a window no longer shows, and returns how many. Where the cache is paged
  // these are the whole pages of `tokens`, which are used again. Elsewhere they are all of `tokens`, and the rest is
  // moved in memory, or none while they are fewer than a quarter of the rest. The others move up: length() becomes
  // less, and masks that are aligned bottom_right mean what they meant.
  std::int64_t forget(std::int64_t item, std::int64_t tokens) override;

  const KVCacheConfig& config() const override;  // value_dim as it is in use
  std::int64_t length(std::int64_t item) const override;
  // Copies of one item's (hkv, length, d) and (hkv, length, dv), in the stored dtype; int8 as float32.
  Tensor keys(std::int64_t item) const;
  Tensor values(std::int64_t item) const;
  std::size_t bytes() const override;  // of the memory held for keys, values and scales, in use or not
  AttentionResult attend(const Tensor& q, std::optional<std::int64_t> item,
                         const AttentionOptions& options) const override;

 private:
  struct State;
  const State& state() const;
  State& state();
  AttentionResult attend_items(const Tensor& q, std::optional<std::int64_t> item, const AttentionOptions& options,
                               bool to_merge) const;

  std::unique_ptr<State> state_;

  friend AttentionResult attention_to_merge(const Tensor& q, const KVCache& cache, std::optional<std::int64_t> item,
                                            const AttentionOptions& options);
};

// attention() of q (b, hq, tq, d), float32, bfloat16 or float16 whatever the cache stores, to the keys and values of
// the cache, whose lengths take the place of options.mask.key_lengths: tk is max_length(), and query i of an item with
// n keys is, where the mask is aligned bottom_right, token n - tq + i of it. That is what a decoder wants that has
// appended its new tokens first; top_left, the default, puts the first query beside the first key. Any number of
// queries reads the cache as it is, paged or not; weights, where they are asked for, are computed from a copy. Computed
// in float32 unless q and cache share a dtype. Throws Error as attention() does, and (argument) for a mask with
// key_lengths or packed sequences of its own.
AttentionResult attention(const Tensor& q, const DecoderCache& cache, const AttentionOptions& options = {});
// The same for q (1, hq, tq, d) and one item of the cache: so a prompt is read, in pieces.
AttentionResult attention(const Tensor& q, const DecoderCache& cache, std::int64_t item,
                          const AttentionOptions& options = {});

}  // namespace attn
