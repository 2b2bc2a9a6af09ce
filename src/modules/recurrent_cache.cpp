#include "attn/recurrent_cache.hpp"

#include <limits>
#include <string>

#include "attn/error.hpp"
#include "ops/input.hpp"

namespace attn {
namespace {

constexpr const char* kRecurrentCache = "RecurrentCache";

[[noreturn]] void refuse(const char* expected, const std::string& found) {
  throw Error(Error::Kind::argument, kRecurrentCache, expected, found,
              "a state is a sum over all tokens, from which none can be taken away; keep a clone() of the cache");
}

}  // namespace

RecurrentCache::RecurrentCache(const RecurrentCacheConfig& c) : config_(c) {
  for (const auto& [name, size] : {std::pair{"batch", c.batch},
                                   {"heads", c.heads},
                                   {"key_dim", c.key_dim},
                                   {"value_dim", c.value_dim},
                                   {"taps", c.taps},
                                   {"channels", c.channels + 1}})
    require_positive(kRecurrentCache, name, size);
  constexpr std::int64_t kMostItems = std::int64_t{1} << 31;
  if (c.batch > kMostItems)
    throw Error(Error::Kind::argument, kRecurrentCache, "a batch of at most 2^31", std::to_string(c.batch));
  if (c.dtype != DType::f32 && c.dtype != DType::bf16)
    throw Error(Error::Kind::dtype, kRecurrentCache, "states in float32 or bfloat16", std::string(name(c.dtype)));
  as_kv_ = {.batch = c.batch, .kv_heads = c.heads, .head_dim = c.key_dim, .value_dim = c.value_dim, .dtype = c.dtype};
  empty_ = {Tensor::zeros({c.heads, c.key_dim, c.value_dim}, c.dtype), Tensor::zeros({c.channels, c.taps - 1}), 0};
  items_.assign(static_cast<std::size_t>(c.batch), {empty_, empty_});
}

const RecurrentCache::Item& RecurrentCache::at(std::int64_t item) const {
  if (item < 0 || item >= config_.batch)
    throw Error(Error::Kind::argument, kRecurrentCache, "an item from 0 to " + std::to_string(config_.batch - 1),
                std::to_string(item));
  return items_[static_cast<std::size_t>(item)];
}

Tensor RecurrentCache::all(Tensor Kept::*part, std::optional<std::int64_t> item) const {
  if (item) return (at(*item).now.*part).to(DType::f32).clone().unsqueeze(0);
  std::vector<Tensor> each;
  for (const Item& one : items_) each.push_back((one.now.*part).to(DType::f32));
  return stack(each);
}

Tensor RecurrentCache::state(std::optional<std::int64_t> item) const { return all(&Kept::state, item); }

Tensor RecurrentCache::window(std::optional<std::int64_t> item) const { return all(&Kept::window, item); }

void RecurrentCache::update(const Tensor& state, const Tensor& window, std::int64_t tokens,
                            std::optional<std::int64_t> item) {
  const std::int64_t first = item.value_or(0), count = item ? 1 : config_.batch;
  at(first);
  const Shape states{count, config_.heads, config_.key_dim, config_.value_dim};
  const Shape windows{count, config_.channels, config_.taps - 1};
  if (!(state.shape() == states) || !(window.shape() == windows))
    throw Error(Error::Kind::shape, kRecurrentCache, "a state " + states.str() + " and a window " + windows.str(),
                state.shape().str() + " and " + window.shape().str());
  for (std::int64_t i = first; i < first + count; ++i) {
    const std::int64_t room = std::numeric_limits<std::int64_t>::max() - at(i).now.length;
    if (tokens < 0 || tokens > room)
      throw Error(Error::Kind::argument, kRecurrentCache, "tokens from 0 to " + std::to_string(room),
                  std::to_string(tokens));
  }
  std::vector<Item> next = items_;
  for (std::int64_t i = 0; i < count; ++i) {
    Item& one = next[static_cast<std::size_t>(first + i)];
    const Tensor narrow = state.select(0, i).to(config_.dtype);
    one = {{narrow.clone(), window.select(0, i).to(DType::f32).clone(), one.now.length + tokens}, one.now};
  }
  items_ = std::move(next);
}

std::size_t RecurrentCache::bytes() const {
  const auto size = [](const Tensor& t) { return static_cast<std::size_t>(t.numel()) * size_of(t.dtype()); };
  return 2 * items_.size() * (size(empty_.state) + size(empty_.window));
}

void RecurrentCache::append(const Tensor&, const Tensor&) {
  refuse("update() with the states that follow", "keys and values");
}

void RecurrentCache::append(std::int64_t, const Tensor& k, const Tensor& v) { append(k, v); }

void RecurrentCache::truncate(std::int64_t item, std::int64_t length) {
  const Item& one = at(item);
  if (length == one.now.length) return;
  if (length != 0 && length != one.before.length) {
    refuse("a length of 0, of now, or of before the last update", std::to_string(length));
  }
  const Kept kept = length == 0 ? empty_ : one.before;
  items_[static_cast<std::size_t>(item)] = {kept, kept};
}

std::int64_t RecurrentCache::forget(std::int64_t, std::int64_t tokens) {
  refuse("no token to be forgotten", std::to_string(tokens) + " tokens");
}

AttentionResult RecurrentCache::attend(const Tensor&, std::optional<std::int64_t>, const AttentionOptions&) const {
  refuse("state() to be read", "a query to all keys");
}

}  // namespace attn
