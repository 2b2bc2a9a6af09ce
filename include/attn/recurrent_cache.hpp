// A decoder keeps states of a recurrent layer between its steps; their size does not grow with the text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "attn/kv_cache.hpp"

namespace attn {

struct RecurrentCacheConfig {
  std::int64_t batch = 1, heads = 1, key_dim = 1, value_dim = 1;
  std::int64_t channels = 0, taps = 1;  // of the convolution before the rule; it keeps its last taps - 1 inputs
  DType dtype = DType::f32;             // of the states: float32 or bfloat16
};

// Stands beside a KVCache in a decoder. Keys and values are not kept: append(), forget(), attend() and truncate() to a
// length between refuse, and say so; truncate() goes back to nothing, or to before the last update. Throws Error for
// sizes below 1, an item that is not there (argument), another dtype of the states (dtype), and states of other shapes.
class RecurrentCache : public DecoderCache {
 public:
  explicit RecurrentCache(const RecurrentCacheConfig& config);
  // A cache of its own with the same states, to go on twice from one prompt.
  std::unique_ptr<RecurrentCache> clone() const { return std::unique_ptr<RecurrentCache>(new RecurrentCache(*this)); }

  // Return copies in float32, of all items (b, heads, key_dim, value_dim) and (b, channels, taps - 1), or of one, b
  // = 1.
  Tensor state(std::optional<std::int64_t> item = {}) const;
  Tensor window(std::optional<std::int64_t> item = {}) const;
  // Takes the states after `tokens` more, of the same shapes.
  void update(const Tensor& state, const Tensor& window, std::int64_t tokens, std::optional<std::int64_t> item = {});

  const RecurrentCacheConfig& recurrent_config() const noexcept { return config_; }
  const KVCacheConfig& config() const override { return as_kv_; }
  std::int64_t length(std::int64_t item) const override { return at(item).now.length; }
  std::size_t bytes() const override;
  void append(const Tensor& k, const Tensor& v) override;
  void append(std::int64_t item, const Tensor& k, const Tensor& v) override;
  void truncate(std::int64_t item, std::int64_t length) override;
  using DecoderCache::truncate;
  std::int64_t forget(std::int64_t item, std::int64_t tokens) override;
  AttentionResult attend(const Tensor& q, std::optional<std::int64_t> item,
                         const AttentionOptions& options) const override;

 private:
  RecurrentCache(const RecurrentCache&) = default;

  // Tensors are replaced and never changed, so that clones share them.
  struct Kept {
    Tensor state, window;
    std::int64_t length = 0;
  };
  struct Item {
    Kept now, before;
  };
  const Item& at(std::int64_t item) const;
  Tensor all(Tensor Kept::*part, std::optional<std::int64_t> item) const;

  RecurrentCacheConfig config_;
  KVCacheConfig as_kv_;
  Kept empty_;
  std::vector<Item> items_;
};

}  // namespace attn
