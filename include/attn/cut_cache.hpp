// A decoder's cache of keys and values that is cut among ranks, and text that ranks write together. docs/distributed.md
// says what that costs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attn/distributed.hpp"
#include "attn/generate.hpp"
#include "attn/kv_cache.hpp"

namespace attn::distributed {

// Rank r keeps, of the tokens that all ranks append alike, every size()-th, from token r on, so that all keep as many.
// Each rank computes the queries, which are the same on all ranks, over the keys that it has; one reduction merges the
// results, and all get the whole, with the same bits (as decode(): Shyam et al. 2024). All ranks construct it, and make
// each call, together, and one after the other, those that are const too. A rank that throws alone, out of memory for
// example, leaves the others waiting.
class CutCache : public DecoderCache {
 public:
  // `transport` must outlive it. Throws Error (argument) on all ranks where the configs differ, and for pages.
  CutCache(Transport& transport, const KVCacheConfig& config);

  void append(const Tensor& k, const Tensor& v) override;
  void append(std::int64_t item, const Tensor& k, const Tensor& v) override;
  void truncate(std::int64_t item, std::int64_t length) override;
  using DecoderCache::truncate;
  // As KVCache's; the number is a multiple of size().
  std::int64_t forget(std::int64_t item, std::int64_t tokens) override;

  const KVCacheConfig& config() const override { return config_; }
  std::int64_t length(std::int64_t item) const override;  // on all ranks together
  std::size_t bytes() const override { return own_.bytes(); }
  // Takes queries of the latest tokens; causal masks aligned bottom_right with a window or without, scale, softcap,
  // sinks, precision and output_dtype. Throws Error (argument) for any other option.
  AttentionResult attend(const Tensor& q, std::optional<std::int64_t> item,
                         const AttentionOptions& options) const override;

 private:
  std::int64_t share(std::int64_t tokens) const;
  void check_rows(const Tensor& k, const Tensor& v, std::size_t rank) const;
  void check_queries(const Tensor& q, std::optional<std::int64_t> item) const;
  void append_to(std::int64_t item, const Tensor& k, const Tensor& v);
  void add_item(const Tensor& q, std::int64_t item, const AttentionOptions& options, const AttentionResult& part) const;
  AttentionResult own_part(const Tensor& q, std::optional<std::int64_t> item, const AttentionOptions& options) const;

  Transport* transport_;
  KVCacheConfig config_;
  KVCache own_;
  std::vector<std::int64_t> lengths_;
};

// The options with which generate() of attn/generate.hpp writes one text by all ranks: each has all of the model's
// weights and a CutCache of each layer, and takes the tokens that rank 0 draws. All ranks call generate() with the same
// model and prompts, and with options that are alike; `each`, where it is given, must say the same on all. What rank 0
// throws while it draws is thrown on all ranks, by the others as Error (data). `transport` must outlive the options.
GenerateOptions over_ranks(Transport& transport, GenerateOptions options);

}  // namespace attn::distributed
