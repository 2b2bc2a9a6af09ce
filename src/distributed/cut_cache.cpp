#include "attn/cut_cache.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "attention/element.hpp"
#include "attention/fused.hpp"
#include "attention/kv_cache_pages.hpp"
#include "attention/validate.hpp"
#include "attn/error.hpp"
#include "distributed/over_keys.hpp"

namespace attn::distributed {
namespace {

constexpr const char* kOp = "CutCache";
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// ⌊a / b⌋, also of an a below 0
std::int64_t floor_of(std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

// Returns indices i = first, first + step, … of a dimension, without a copy.
Tensor every(const Tensor& t, std::int64_t dim, std::int64_t first, std::int64_t step) {
  const std::int64_t from = std::min(first, t.size(dim));
  const Tensor rest = t.slice(dim, from, t.size(dim));
  Shape shape = t.shape(), strides = t.strides();
  const auto d = static_cast<std::size_t>(dim);
  shape[d] = (shape[d] - from + step - 1) / step, strides[d] *= step;
  return Tensor::from_blob(rest.raw(), shape, strides, t.dtype(), t.storage());
}

std::string description(const KVCacheConfig& c) {
  return "batch " + std::to_string(c.batch) + ", kv_heads " + std::to_string(c.kv_heads) + ", head_dim " +
         std::to_string(c.head_dim) + ", value_dim " + std::to_string(c.value_dim) + ", page_size " +
         std::to_string(c.page_size) + ", " + std::string(name(c.dtype));
}

// Throws where what ranks hold does not fit together, with the same words on all.
KVCacheConfig agreed(Transport& transport, KVCacheConfig config) {
  std::vector<std::string> all = transport.all_gather(description(config));
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    throw Error(Error::Kind::argument, kOp, "the cache of rank 0 on every rank, " + all[0],
                all[r] + " on rank " + std::to_string(r));
  }
  if (config.page_size != 0) {
    throw Error(Error::Kind::argument, kOp, "a cache without pages", "page_size " + std::to_string(config.page_size));
  }
  if (config.values_in_keys) throw Error(Error::Kind::argument, kOp, "values beside the keys", "values_in_keys");
  config.capacity = (config.capacity + transport.size() - 1) / transport.size();
  return config;
}

[[noreturn]] void fail(Error::Kind kind, const std::string& expected, const std::string& found) {
  throw Error(kind, kOp, expected, found);
}

void check_options(const AttentionOptions& o) {
  const Mask& m = o.mask;
  const bool has_parts = m.key_lengths.defined() || m.query_starts.defined() || m.key_starts.defined() ||
                         m.keep.defined() || m.bias.defined() || m.block_keep.defined() || m.window_right >= 0;
  const bool is_placed = m.is_causal ? m.align == Align::bottom_right : m.window_left < 0;
  const bool is_plain = !o.score_function && !o.alibi_slopes.defined() && !o.relative_bias.table.defined() &&
                        o.dropout == 0 && !o.query_offset.given() && !o.key_offset.given() && !o.return_weights &&
                        !o.weight_rows.defined();
  if (!has_parts && is_placed && is_plain) return;
  fail(Error::Kind::argument,
       "no mask or a causal one aligned bottom_right, with or without a window, scale, softcap and sinks",
       !is_placed && m.is_causal ? "a causal mask aligned top_left"
       : !is_plain               ? "an option that is none of these"
                                 : "another mask");
}

}  // namespace

CutCache::CutCache(Transport& transport, const KVCacheConfig& config)
    : transport_(&transport),
      config_(config),
      own_(agreed(transport, config)),
      lengths_(static_cast<std::size_t>(config.batch), 0) {
  config_.value_dim = own_.config().value_dim;
}

std::int64_t CutCache::length(std::int64_t item) const {
  own_.length(item);  // which knows what items there are
  return lengths_[static_cast<std::size_t>(item)];
}

// Returns how many of the first `tokens` this rank has.
std::int64_t CutCache::share(std::int64_t tokens) const {
  return (tokens + transport_->size() - 1 - transport_->rank()) / transport_->size();
}

// Checks what the rank's own cache cannot, since it is given only some of the rows.
void CutCache::check_rows(const Tensor& k, const Tensor& v, std::size_t rank) const {
  const bool fits = k.defined() && v.defined() && k.rank() == rank && v.rank() == rank && k.size(-2) == v.size(-2) &&
                    (rank == 3 || (k.size(0) == config_.batch && v.size(0) == config_.batch));
  if (fits) return;
  fail(Error::Kind::shape,
       rank == 3 ? "k (hkv, t, d) and v (hkv, t, dv)" : "k (b, hkv, t, d) and v (b, hkv, t, dv) of all items",
       k.shape().str() + " and " + v.shape().str());
}

void CutCache::append_to(std::int64_t item, const Tensor& k, const Tensor& v) {
  const std::int64_t ranks = transport_->size(), first = (transport_->rank() + ranks - length(item) % ranks) % ranks;
  own_.append(item, every(k, 1, first, ranks), every(v, 1, first, ranks));
}

void CutCache::append(std::int64_t item, const Tensor& k, const Tensor& v) {
  check_rows(k, v, 3);
  append_to(item, k, v);
  lengths_[static_cast<std::size_t>(item)] += k.size(1);
}

void CutCache::append(const Tensor& k, const Tensor& v) {
  check_rows(k, v, 4);
  try {
    for (std::int64_t item = 0; item < config_.batch; ++item) append_to(item, k.select(0, item), v.select(0, item));
  } catch (...) {
    for (std::int64_t item = 0; item < config_.batch; ++item) own_.truncate(item, share(length(item)));
    throw;
  }
  for (std::int64_t& length : lengths_) length += k.size(2);
}

void CutCache::truncate(std::int64_t item, std::int64_t length) {
  if (length < 0 || length > this->length(item)) {
    fail(Error::Kind::argument, "a length to truncate to from 0 to " + std::to_string(this->length(item)),
         std::to_string(length));
  }
  own_.truncate(item, share(length));
  lengths_[static_cast<std::size_t>(item)] = length;
}

// All ranks forget as many rows, or none where that is not worth it for the rank that has most.
std::int64_t CutCache::forget(std::int64_t item, std::int64_t tokens) {
  const std::int64_t held = length(item), ranks = transport_->size(), rows = tokens / ranks;
  if (tokens < 0 || tokens > held) {
    fail(Error::Kind::argument, "tokens to forget from 0 to " + std::to_string(held), std::to_string(tokens));
  }
  if (!worth_moving(rows, (held + ranks - 1) / ranks - rows)) return 0;
  const std::int64_t forgotten = own_.forget(item, rows) * ranks;
  lengths_[static_cast<std::size_t>(item)] -= forgotten;
  return forgotten;
}

void CutCache::check_queries(const Tensor& q, std::optional<std::int64_t> item) const {
  const std::int64_t items = item ? 1 : config_.batch, first = item.value_or(0);
  const bool fits = q.defined() && q.rank() == 4 && q.size(0) == items && q.size(1) % config_.kv_heads == 0 &&
                    q.size(3) == config_.head_dim;
  const std::string expected = "q (" + std::to_string(items) + ", a multiple of " + std::to_string(config_.kv_heads) +
                               " heads, the latest tokens, " + std::to_string(config_.head_dim) + ")";
  if (!fits) fail(Error::Kind::shape, expected, q.shape().str());
  if (!is_floating(q.dtype()) || !has_element(q.dtype())) {
    fail(Error::Kind::dtype, "q of float32, bfloat16 or float16", std::string(name(q.dtype())));
  }
  for (std::int64_t b = first; b < first + items; ++b) {
    if (q.size(2) > length(b)) fail(Error::Kind::shape, expected, q.shape().str() + ", more than there are");
  }
}

// Computes an item's part: row s of this rank is token s · ranks + rank. So the rows that queries i, i + ranks, … see,
// up to their own tokens and down to the window's end, move up by one from each to the next, as under a causal mask on
// rows.
void CutCache::add_item(const Tensor& q, std::int64_t item, const AttentionOptions& options,
                        const AttentionResult& part) const {
  constexpr std::int64_t far = std::int64_t{1} << 40;  // further than any key
  const std::int64_t ranks = transport_->size(), tokens = q.size(2), left = std::min(options.mask.window_left, far);
  for (std::int64_t i = 0; i < std::min(ranks, tokens); ++i) {
    const std::int64_t at = length(item) - tokens + i - transport_->rank();
    const std::int64_t last = floor_of(at, ranks), first = floor_of(at - left + ranks - 1, ranks);
    if (left >= 0 && first > last) continue;  // the window has none of this rank's
    AttentionOptions own = options;
    own.mask = Mask::causal();
    if (left >= 0) own.mask.window_left = last - first;
    own.query_offset = last + 1, own.key_offset = 1;  // the first query stands at row `last`, which may be -1
    const AttentionResult result = attention_to_merge(every(q, 2, i, ranks), own_, item, own);
    every(part.output, 2, i, ranks).copy_from(result.output);
    every(part.lse, 2, i, ranks).copy_from(result.lse);
  }
}

// Attends over this rank's keys: output of float32, and lse of float64.
AttentionResult CutCache::own_part(const Tensor& q, std::optional<std::int64_t> item,
                                   const AttentionOptions& options) const {
  const Mask& mask = options.mask;
  if (!mask.is_causal || (q.size(2) == 1 && mask.window_left < 0)) {  // every query sees all keys
    AttentionOptions own = options;
    own.mask = {};
    return attention_to_merge(q, own_, item, own);
  }
  const AttentionResult part{Tensor::zeros({q.size(0), q.size(1), q.size(2), config_.value_dim}),
                             Tensor::full({q.size(0), q.size(1), q.size(2)}, kMinusInfinity, DType::f64)};
  for (std::int64_t b = 0; b < q.size(0); ++b) {
    const auto of_item = [b](const Tensor& t) { return t.slice(0, b, b + 1); };
    add_item(of_item(q), item.value_or(b), options, {of_item(part.output), of_item(part.lse)});
  }
  return part;
}

AttentionResult CutCache::attend(const Tensor& q, std::optional<std::int64_t> item,
                                 const AttentionOptions& options) const {
  check_options(options), check_queries(q, item);
  const std::int64_t tokens = item ? length(*item) : max_length();
  const auto like = [&](std::int64_t width) {
    return stand_in({q.size(0), config_.kv_heads, tokens, width}, q.dtype());
  };
  validate(q, like(config_.head_dim), like(config_.value_dim), options);  // here, where all ranks throw alike
  AttentionOptions own = options;
  own.sinks = {}, own.output_dtype = DType::f32;
  Partial all = merged_over_ranks(*transport_, own_part(q, item, own));
  const Shape shape{q.size(0), q.size(1), q.size(2), config_.value_dim};
  if (options.sinks.defined()) all.add_sinks(options.sinks, shape);
  AttentionResult result{Tensor::empty(shape, options.output_dtype.value_or(q.dtype())),
                         Tensor::empty({shape[0], shape[1], shape[2]})};
  all.store(result.output, result.lse);
  return result;
}

}  // namespace attn::distributed
