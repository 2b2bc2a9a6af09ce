#include <string>
#include <utility>
#include <vector>

#include "attention/element.hpp"
#include "attention/fused.hpp"
#include "attention/kv_cache_rows.hpp"
#include "attention/kv_cache_state.hpp"
#include "attn/error.hpp"
#include "attn/kv_cache.hpp"
#include "kernels/problem.hpp"
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

// What stands for the cache's keys or values where only their shape counts.
Tensor shape_of(const KVCache& cache, std::int64_t width, DType dtype) {
  static double zero = 0;
  const KVCacheConfig& c = cache.config();
  return Tensor::from_blob(&zero, {c.batch, c.kv_heads, cache.max_length(), width}, {0, 0, 0, 0}, dtype);
}

kernels::PageRows page_rows(const KVPages& pages, const PagePart& part) {
  return {part.offset, pages.page_tokens() * part.row, part.row, part.scales};
}

}  // namespace

AttentionResult attention(const Tensor& q, const KVCache& cache, const AttentionOptions& options) {
  const KVCache::State& s = cache.state();
  check_queries(q);
  check_own_parts(options.mask);
  AttentionOptions own = options;
  own.mask.key_lengths = cache.lengths();
  const auto gathered = [&](DType dtype) {
    const auto all = [&](const PagePart& part) {
      return gather(s.pages, part, s.config, s.lengths, cache.max_length()).to(dtype);
    };
    return std::pair(all(s.pages.keys()), all(s.pages.values()));
  };
  AttentionResult result;
  const Problem p =
      validate(q, shape_of(cache, s.config.head_dim, q.dtype()), shape_of(cache, s.config.value_dim, q.dtype()), own);
  if (can_decode(q, p, own)) {
    std::vector<const void* const*> tables;
    for (std::int64_t item = 0; item < s.config.batch; ++item) {
      tables.push_back(s.pages.table(item));
    }
    const kernels::Pages pages{tables.data(), s.pages.page_tokens(), element(s.config.dtype),
                               page_rows(s.pages, s.pages.keys()), page_rows(s.pages, s.pages.values())};
    result = fused_decode(q.to(DType::f32), pages, p, own, [&] { return gathered(DType::f32); });
  } else {
    const DType dtype = q.dtype() == s.config.dtype ? q.dtype() : DType::f32;
    const auto [k, v] = gathered(dtype);
    result = attention(q.to(dtype), k, v, own);
  }
  result.output = reference::saturate_to(result.output, q.dtype());
  return result;
}

}  // namespace attn
