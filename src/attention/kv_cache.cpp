#include "attn/kv_cache.hpp"

#include <algorithm>
#include <string>

#include "attention/element.hpp"
#include "attention/kv_cache_rows.hpp"
#include "attention/kv_cache_state.hpp"
#include "attn/error.hpp"

namespace attn {
namespace {

using Kind = Error::Kind;

constexpr std::int64_t kMostTokens = (std::int64_t{1} << 30) - 1;  // as attention() takes
constexpr std::int64_t kMostRows = 1 << 20;                        // batch items, heads, and elements of a row

[[noreturn]] void fail(Kind kind, const std::string& expected, const std::string& found) {
  throw Error(kind, "KVCache", expected, found);
}

void check_range(const char* what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  fail(Kind::argument, std::string(what) + " from " + std::to_string(least) + " to " + std::to_string(most),
       std::to_string(value));
}

KVCacheConfig checked(KVCacheConfig config) {
  check_range("batch", config.batch, 1, kMostRows);
  check_range("kv_heads", config.kv_heads, 1, kMostRows);
  check_range("head_dim", config.head_dim, 1, kMostRows);
  check_range("value_dim", config.value_dim, 0, kMostRows);
  check_range("page_size", config.page_size, 0, kMostTokens);
  check_range("capacity", config.capacity, 0, kMostTokens);
  if (config.value_dim == 0) config.value_dim = config.head_dim;
  if (config.values_in_keys) check_range("value_dim, of values in keys,", config.value_dim, 1, config.head_dim);
  if (has_element(config.dtype)) return config;
  throw Error(Kind::dtype, "KVCache", "storage in float32, bfloat16, float16 or int8", name(config.dtype));
}

void check_rows(const Tensor& k, const Tensor& v, const Shape& leading, const KVCacheConfig& config) {
  if (config.values_in_keys && v.defined()) {
    fail(Kind::argument, "no v beside k: values are a part of the keys", v.shape().str());
  }
  const Tensor& given = config.values_in_keys ? k : v;
  if (!k.defined() || !given.defined()) fail(Kind::argument, "k and v", "an undefined tensor");
  for (const Tensor* t : {&k, &given}) {
    if (!is_floating(t->dtype())) throw Error(Kind::dtype, "KVCache", "k and v of floating dtypes", name(t->dtype()));
  }
  const std::size_t rank = leading.size() + 2;
  Shape keys = leading, values = leading;
  const std::int64_t tokens = k.rank() == rank ? k.size(-2) : 1;
  for (Shape* s : {&keys, &values}) s->push_back(tokens);
  keys.push_back(config.head_dim), values.push_back(config.values_in_keys ? config.head_dim : config.value_dim);
  if (k.shape() == keys && given.shape() == values) return;
  fail(Kind::shape,
       std::string(rank == 4 ? "k (b, hkv, t, d), v (b, hkv, t, dv)" : "k (hkv, t, d), v (hkv, t, dv)") + " like " +
           keys.str() + " and " + values.str(),
       k.shape().str() + " and " + given.shape().str());
}

}  // namespace

std::int64_t DecoderCache::max_length() const {
  std::int64_t most = 0;
  for (std::int64_t item = 0; item < config().batch; ++item) most = std::max(most, length(item));
  return most;
}

Tensor DecoderCache::lengths() const {
  const Tensor all = Tensor::empty({config().batch}, DType::i64);
  for (std::int64_t item = 0; item < config().batch; ++item) all.data<std::int64_t>()[item] = length(item);
  return all;
}

void DecoderCache::truncate(std::int64_t length) {
  check_range("a length to truncate to", length, 0, max_length());
  for (std::int64_t item = 0; item < config().batch; ++item) truncate(item, std::min(length, this->length(item)));
}

std::unique_ptr<DecoderCache> make_cache(const KVCacheConfig& config, const MakeCache& make) {
  auto made = make ? make(config) : std::make_unique<KVCache>(config);
  if (!made) throw Error(Error::Kind::argument, "make_cache", "a cache", "null");
  return made;
}

KVCache::KVCache(const KVCacheConfig& config) {
  const KVCacheConfig own = checked(config);
  state_.reset(new State{own, KVPages(own), std::vector<std::int64_t>(static_cast<std::size_t>(own.batch), 0)});
}

KVCache::KVCache(KVCache&&) noexcept = default;
KVCache& KVCache::operator=(KVCache&&) noexcept = default;
KVCache::~KVCache() = default;

const KVCache::State& KVCache::state() const {
  if (!state_) fail(Kind::argument, "a cache", "one that was moved from");
  return *state_;
}

KVCache::State& KVCache::state() { return const_cast<State&>(std::as_const(*this).state()); }

KVCache KVCache::clone() const {
  const State& from = state();
  KVCacheConfig empty = from.config;
  empty.capacity = 0;
  KVCache copy(empty);
  *copy.state_ = {from.config, from.pages.clone(), from.lengths};
  return copy;
}

void KVCache::append(const Tensor& k, const Tensor& v) {
  State& s = state();
  check_rows(k, v, {s.config.batch, s.config.kv_heads}, s.config);
  const std::int64_t tokens = k.size(2);
  check_range("further tokens of an item", tokens, 0, kMostTokens - max_length());
  // First all that can fail, then the rows, which nobody sees before the lengths count them.
  for (std::int64_t item = 0; item < s.config.batch; ++item) s.pages.reserve(item, length(item) + tokens);
  for (std::int64_t item = 0; item < s.config.batch; ++item) {
    write_rows(s.pages, s.pages.keys(), s.config.dtype, item, length(item), k.select(0, item));
    if (!v.defined()) continue;
    write_rows(s.pages, s.pages.values(), s.config.dtype, item, length(item), v.select(0, item));
  }
  for (std::int64_t& length : s.lengths) length += tokens;
}

void KVCache::append(std::int64_t item, const Tensor& k, const Tensor& v) {
  State& s = state();
  const std::int64_t before = length(item);
  check_rows(k, v, {s.config.kv_heads}, s.config);
  check_range("further tokens of an item", k.size(1), 0, kMostTokens - before);
  s.pages.reserve(item, before + k.size(1));
  write_rows(s.pages, s.pages.keys(), s.config.dtype, item, before, k);
  if (v.defined()) write_rows(s.pages, s.pages.values(), s.config.dtype, item, before, v);
  s.lengths[static_cast<std::size_t>(item)] += k.size(1);
}

void KVCache::truncate(std::int64_t item, std::int64_t length) {
  State& s = state();
  check_range("a length to truncate to", length, 0, this->length(item));
  s.lengths[static_cast<std::size_t>(item)] = length;
  s.pages.release(item, length);
}

std::int64_t KVCache::forget(std::int64_t item, std::int64_t tokens) {
  State& s = state();
  check_range("tokens to forget", tokens, 0, length(item));
  const std::int64_t forgotten = s.pages.forget(item, tokens, length(item));
  s.lengths[static_cast<std::size_t>(item)] -= forgotten;
  return forgotten;
}

void KVCache::clear() { truncate(0); }

const KVCacheConfig& KVCache::config() const { return state().config; }

std::int64_t KVCache::length(std::int64_t item) const {
  const State& s = state();
  check_range("an item", item, 0, s.config.batch - 1);
  return s.lengths[static_cast<std::size_t>(item)];
}

Tensor KVCache::keys(std::int64_t item) const {
  const State& s = state();
  const DType dtype = s.config.dtype == DType::i8 ? DType::f32 : s.config.dtype;
  Tensor out = Tensor::empty({s.config.kv_heads, length(item), s.config.head_dim}, dtype);
  read_rows(s.pages, s.pages.keys(), s.config.dtype, item, out);
  return out;
}

Tensor KVCache::values(std::int64_t item) const {
  const State& s = state();
  const DType dtype = s.config.dtype == DType::i8 ? DType::f32 : s.config.dtype;
  Tensor out = Tensor::empty({s.config.kv_heads, length(item), s.config.value_dim}, dtype);
  read_rows(s.pages, s.pages.values(), s.config.dtype, item, out);
  return out;
}

std::size_t KVCache::bytes() const { return state().pages.bytes(); }

}  // namespace attn
