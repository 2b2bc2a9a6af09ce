#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention/element.hpp"
#include "attention/fused.hpp"
#include "attention/kv_cache_rows.hpp"
#include "attention/kv_cache_state.hpp"
#include "attn/error.hpp"
#include "attn/kv_cache.hpp"
#include "core/rows.hpp"
#include "kernels/problem.hpp"
#include "reference/elementwise.hpp"

namespace attn {
namespace {

using Items = std::vector<std::int64_t>;

// How many tokens each has, and the most.
struct Lengths {
  Lengths(const KVCache& cache, const Items& items) {
    for (const std::int64_t item : items) each.push_back(cache.length(item));
    longest = *std::max_element(each.begin(), each.end());
  }

  Items each;
  std::int64_t longest;
};

// The rows of the items as (b, hkv, longest, width), in the cache's dtype or float32; zeros past an
// item's length.
Tensor gather(const KVPages& pages, const PagePart& part, const KVCacheConfig& config, const Items& items,
              const Lengths& lengths, DType dtype) {
  const auto batch = static_cast<std::int64_t>(items.size());
  const Tensor all = Tensor::empty({batch, config.kv_heads, lengths.longest, part.width}, dtype);
  for_runs(
      batch * config.kv_heads, static_cast<double>(lengths.longest * part.width),
      [&](std::int64_t at, std::int64_t) {
        const std::int64_t b = at / config.kv_heads, h = at % config.kv_heads;
        const auto i = static_cast<std::size_t>(b);
        const Tensor own = all.select(0, b).select(0, h);
        read_rows(pages, part, config.dtype, items[i], h, own.slice(0, 0, lengths.each[i]));
        own.slice(0, lengths.each[i], lengths.longest).fill(0);
      },
      1);
  return all;
}

// The rows of an item that is not paged, as they lie: (1, hkv, t, width).
Tensor rows_of(const KVPages& pages, const PagePart& part, const KVCacheConfig& config, std::int64_t item,
               std::int64_t tokens) {
  if (tokens == 0) return Tensor::empty({1, config.kv_heads, 0, part.width}, config.dtype);
  const std::int64_t row = part.row / static_cast<std::int64_t>(size_of(config.dtype));
  const std::int64_t head = pages.page_tokens() * row;
  return Tensor::from_blob(pages.row(part, item, 0, 0), {1, config.kv_heads, tokens, part.width},
                           {config.kv_heads * head, head, row, 1}, config.dtype);
}

void check_own_parts(const Mask& mask) {
  if (!mask.key_lengths.defined() && !mask.query_starts.defined() && !mask.key_starts.defined()) return;
  throw Error(Error::Kind::argument, "attention",
              "a mask without key_lengths or packed sequences: the cache has lengths",
              mask.key_lengths.defined() ? "key_lengths" : "packed sequences");
}

void check_queries(const Tensor& q) {
  if (q.defined() && is_floating(q.dtype()) && has_element(q.dtype())) return;
  throw Error(Error::Kind::dtype, "attention", "q of float32, bfloat16 or float16 to a cache",
              q.defined() ? std::string(name(q.dtype())) : "an undefined tensor");
}

Tensor shape_of(const KVCacheConfig& config, const Lengths& lengths, std::int64_t width, DType dtype) {
  return stand_in({static_cast<std::int64_t>(lengths.each.size()), config.kv_heads, lengths.longest, width}, dtype);
}

kernels::PageRows page_rows(const KVPages& pages, const PagePart& part) {
  return {part.offset, pages.page_tokens() * part.row, part.row, part.scales};
}

}  // namespace

AttentionResult KVCache::attend_items(const Tensor& q, std::optional<std::int64_t> item,
                                      const AttentionOptions& options, bool to_merge) const {
  const State& s = state();
  Items items(static_cast<std::size_t>(item ? 1 : s.config.batch));
  if (item) {
    items[0] = *item;
  } else {
    std::iota(items.begin(), items.end(), std::int64_t{0});
  }
  check_queries(q);
  check_own_parts(options.mask);
  const Lengths lengths(*this, items);
  AttentionOptions own = options;
  own.mask.key_lengths =
      Tensor::from(std::span<const std::int64_t>(lengths.each), {static_cast<std::int64_t>(items.size())});
  const Sizes p = validate(q, shape_of(s.config, lengths, s.config.head_dim, q.dtype()),
                           shape_of(s.config, lengths, s.config.value_dim, q.dtype()), own);
  if (own.output_dtype != DType::f32) own.output_dtype.reset();  // computed in float32 as it may be, and converted last
  const DType dtype = q.dtype() == s.config.dtype && !can_decode(q, p, own) ? q.dtype() : DType::f32;
  const Tensor queries = q.to(dtype);
  const auto gathered = [&] {
    const auto all = [&](const PagePart& part) {
      const bool as_it_is = items.size() == 1 && !s.pages.paged() && s.config.dtype == dtype;
      return as_it_is ? rows_of(s.pages, part, s.config, items[0], lengths.longest)
                      : gather(s.pages, part, s.config, items, lengths, dtype);
    };
    return std::pair(all(s.pages.keys()), all(s.pages.values()));
  };
  AttentionResult result;
  if (can_fuse(q, own)) {
    std::vector<const void* const*> tables;
    for (const std::int64_t one : items) tables.push_back(s.pages.table(one));
    const kernels::Pages pages{tables.data(), s.pages.page_tokens(), element(s.config.dtype),
                               page_rows(s.pages, s.pages.keys()), page_rows(s.pages, s.pages.values())};
    const Tensor rest = to_merge ? Tensor::zeros({p.batch, p.hq, p.tq}) : Tensor{};
    result = fused_attention(queries, pages, p, own, gathered, rest);
    if (to_merge) result.lse = with_rest(result.lse, rest);
  } else {
    const auto [k, v] = gathered();
    result = to_merge ? attention_to_merge(queries, k, v, own) : attention(queries, k, v, own);
  }
  result.output = reference::saturate_to(result.output, output_dtype(q, options));
  return result;
}

AttentionResult KVCache::attend(const Tensor& q, std::optional<std::int64_t> item,
                                const AttentionOptions& options) const {
  return attend_items(q, item, options, false);
}

AttentionResult attention_to_merge(const Tensor& q, const KVCache& cache, std::optional<std::int64_t> item,
                                   const AttentionOptions& options) {
  return cache.attend_items(q, item, options, true);
}

AttentionResult attention(const Tensor& q, const DecoderCache& cache, const AttentionOptions& options) {
  return cache.attend(q, {}, options);
}

AttentionResult attention(const Tensor& q, const DecoderCache& cache, std::int64_t item,
                          const AttentionOptions& options) {
  return cache.attend(q, item, options);
}

}  // namespace attn
