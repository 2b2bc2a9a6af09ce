#include <string>

#include "attention/kv_cache_rows.hpp"
#include "attention/kv_cache_state.hpp"
#include "attn/error.hpp"
#include "attn/kv_cache.hpp"
#include "reference/elementwise.hpp"

namespace attn {
namespace {

// All items' rows as (b, hkv, longest, width), zeros past an item's length.
Tensor gather(const KVPages& pages, const PagePart& part, const KVCacheConfig& config,
              const std::vector<std::int64_t>& lengths, std::int64_t longest) {
  const DType dtype = config.dtype == DType::i8 ? DType::f32 : config.dtype;
  Tensor all = Tensor::zeros({config.batch, config.kv_heads, longest, part.width}, dtype);
  for (std::int64_t item = 0; item < config.batch; ++item) {
    read_rows(pages, part, config.dtype, item,
              all.select(0, item).slice(1, 0, lengths[static_cast<std::size_t>(item)]));
  }
  return all;
}

void check_own_parts(const Mask& mask) {
  if (!mask.key_lengths.defined() && !mask.query_starts.defined() && !mask.key_starts.defined()) return;
  throw Error(Error::Kind::argument, "attention",
              "a mask without key_lengths or packed sequences: the cache has lengths",
              mask.key_lengths.defined() ? "key_lengths" : "packed sequences");
}

void check_queries(const Tensor& q) {
  if (q.defined() && (q.dtype() == DType::f32 || q.dtype() == DType::bf16 || q.dtype() == DType::f16)) return;
  throw Error(Error::Kind::dtype, "attention", "q of float32, bfloat16 or float16 to a cache",
              q.defined() ? std::string(name(q.dtype())) : "an undefined tensor");
}

}  // namespace

AttentionResult attention(const Tensor& q, const KVCache& cache, const AttentionOptions& options) {
  const KVCache::State& s = cache.state();
  check_queries(q);
  check_own_parts(options.mask);
  AttentionOptions own = options;
  own.mask.key_lengths = cache.lengths();
  const DType dtype = q.dtype() == s.config.dtype ? q.dtype() : DType::f32;
  const Tensor k = gather(s.pages, s.pages.keys(), s.config, s.lengths, cache.max_length()).to(dtype);
  const Tensor v = gather(s.pages, s.pages.values(), s.config, s.lengths, cache.max_length()).to(dtype);
  AttentionResult result = attention(q.to(dtype), k, v, own);
  result.output = reference::saturate_to(result.output, q.dtype());
  return result;
}

}  // namespace attn
