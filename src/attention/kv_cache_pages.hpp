// The memory of a KVCache: pages from a pool, and a table of them for each batch item.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attn/kv_cache.hpp"

namespace attn {

// Rows of keys, or of values: (hkv, tokens of a page, width) from `offset` of a page on, `row` apart, and of int8 (hkv,
// tokens) float32 scales from `scales` on. In bytes but the width. Values that are in keys lie in the keys' rows.
struct PagePart {
  std::int64_t width, row, offset = 0, scales = 0;
};

// Whether forgetting so many tokens is worth moving those that stay: at most four for each.
constexpr bool worth_moving(std::int64_t tokens, std::int64_t left) { return tokens > 0 && 4 * tokens >= left; }

class KVPages {
 public:
  // Throws Error (argument) when a page would not fit an address.
  explicit KVPages(const KVCacheConfig& config);

  // Room for `tokens` of every item, or of one. Throws std::bad_alloc, and then nothing of a cache is lost.
  void reserve(std::int64_t tokens);
  void reserve(std::int64_t item, std::int64_t tokens);
  // Pages that `tokens` do not need go back to the pool.
  void release(std::int64_t item, std::int64_t tokens) noexcept;
  // Forgets up to `tokens` at the front of an item of `length`; returns how many, as KVCache::forget() says.
  std::int64_t forget(std::int64_t item, std::int64_t tokens, std::int64_t length) noexcept;
  KVPages clone() const;

  const PagePart& keys() const noexcept { return keys_; }
  const PagePart& values() const noexcept { return values_; }
  bool paged() const noexcept { return paged_; }
  std::int64_t page_tokens() const noexcept { return page_tokens_; }
  // Returns the pages of an item; page i holds its tokens from i · page_tokens on.
  const void* const* table(std::int64_t item) const { return tables_[static_cast<std::size_t>(item)].data(); }
  std::byte* row(const PagePart& part, std::int64_t item, std::int64_t head, std::int64_t token) const;
  float* scale(const PagePart& part, std::int64_t item, std::int64_t head, std::int64_t token) const;
  std::size_t bytes() const noexcept;

 private:
  void lay_out(std::int64_t tokens);
  void refill(std::size_t pages);
  void grow(std::int64_t tokens);
  void move_up(std::int64_t item, std::int64_t first, std::int64_t tokens) noexcept;
  std::byte* page(std::int64_t item, std::int64_t token) const;

  std::int64_t heads_, page_tokens_ = 0, page_bytes_ = 0;
  bool paged_, scaled_, values_in_keys_;
  PagePart keys_, values_;
  std::vector<Tensor> slabs_;  // what owns the pages: some of them each
  std::vector<void*> free_;    // room for all pages, so that release() needs no memory
  std::size_t pages_ = 0;      // in all
  std::vector<std::vector<void*>> tables_;
};

}  // namespace attn
