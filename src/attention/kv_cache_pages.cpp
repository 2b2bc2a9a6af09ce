#include "attention/kv_cache_pages.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "attn/error.hpp"

namespace attn {
namespace {

constexpr std::int64_t kLine = 64;            // bytes: rows and scales of a page begin at whole lines
constexpr std::int64_t kFirstTokens = 64;     // least room of an item that is not paged
constexpr std::int64_t kSlabBytes = 4 << 20;  // the pool grows by about so much, or by a page

std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

std::int64_t pages_for(std::int64_t tokens, std::int64_t page_tokens) {
  return (tokens + page_tokens - 1) / page_tokens;
}

PagePart part(const KVCacheConfig& config, std::int64_t width) {
  return {width, width * static_cast<std::int64_t>(size_of(config.dtype))};
}

}  // namespace

KVPages::KVPages(const KVCacheConfig& config)
    : heads_(config.kv_heads),
      paged_(config.page_size > 0),
      scaled_(config.dtype == DType::i8),
      values_in_keys_(config.values_in_keys),
      keys_(part(config, config.head_dim)),
      values_(part(config, config.value_dim)),
      tables_(static_cast<std::size_t>(config.batch)) {
  if (paged_) {
    try {
      lay_out(config.page_size);
    } catch (const std::bad_alloc&) {
      throw Error(Error::Kind::argument, "KVCache", "a page_size whose pages fit in memory",
                  std::to_string(config.page_size));
    }
  }
  if (config.capacity > 0) reserve(config.capacity);
}

// Where the parts of a page of so many tokens lie.
void KVPages::lay_out(std::int64_t tokens) {
  const double most = static_cast<double>(heads_) * static_cast<double>(tokens) *
                      static_cast<double>(keys_.row + values_.row + 2 * kLine);
  if (most > 0x1p60) throw std::bad_alloc();
  const std::int64_t rows = heads_ * tokens, scales = scaled_ ? round_up(rows * std::int64_t{sizeof(float)}, kLine) : 0;
  page_tokens_ = tokens;
  keys_.offset = 0;
  if (values_in_keys_) {
    keys_.scales = round_up(rows * keys_.row, kLine);
    values_ = {values_.width, keys_.row, 0, keys_.scales};
    page_bytes_ = std::max(keys_.scales + scales, kLine);
    return;
  }
  values_.offset = round_up(rows * keys_.row, kLine);
  keys_.scales = values_.offset + round_up(rows * values_.row, kLine);
  values_.scales = keys_.scales + scales;
  page_bytes_ = std::max(values_.scales + scales, kLine);
}

// More pages in the pool, `pages` at least.
void KVPages::refill(std::size_t pages) {
  const auto count =
      static_cast<std::int64_t>(std::max(pages, std::min(pages_, static_cast<std::size_t>(kSlabBytes / page_bytes_))));
  free_.reserve(pages_ + static_cast<std::size_t>(count));
  slabs_.push_back(Tensor::empty({count, page_bytes_}, DType::u8));
  pages_ += static_cast<std::size_t>(count);
  auto* first = static_cast<std::byte*>(slabs_.back().raw());
  for (std::int64_t i = count; i-- > 0;) free_.push_back(first + i * page_bytes_);
}

void KVPages::reserve(std::int64_t item, std::int64_t tokens) {
  if (!paged_) {
    if (tokens > page_tokens_) grow(tokens);
    return;
  }
  auto& table = tables_[static_cast<std::size_t>(item)];
  const auto wanted = static_cast<std::size_t>(pages_for(tokens, page_tokens_));
  if (wanted <= table.size()) return;
  const std::size_t missing = wanted - table.size();
  if (wanted > table.capacity()) table.reserve(std::max(wanted, 2 * table.capacity()));
  if (missing > free_.size()) refill(missing - free_.size());
  for (std::size_t i = 0; i < missing; ++i) {
    table.push_back(free_.back());
    free_.pop_back();
  }
}

void KVPages::reserve(std::int64_t tokens) {
  for (std::size_t item = 0; item < tables_.size(); ++item) reserve(static_cast<std::int64_t>(item), tokens);
}

// Items that are not paged: a larger page for each, and their rows moved there.
void KVPages::grow(std::int64_t tokens) {
  KVPages larger = *this;  // the same sizes, and then memory of its own
  larger.slabs_.clear();
  larger.lay_out(std::max({tokens, 2 * page_tokens_, kFirstTokens}));
  for (auto& table : larger.tables_) {
    larger.slabs_.push_back(Tensor::empty({larger.page_bytes_}, DType::u8));
    table.assign(1, larger.slabs_.back().raw());
  }
  const auto move = [&](std::int64_t item, std::int64_t head) {
    for (const auto side : {&KVPages::keys_, &KVPages::values_}) {
      if (values_in_keys_ && side == &KVPages::values_) break;
      const PagePart &from = this->*side, &to = larger.*side;
      std::memcpy(larger.row(to, item, head, 0), row(from, item, head, 0),
                  static_cast<std::size_t>(page_tokens_ * from.row));
      if (!scaled_) continue;
      std::memcpy(larger.scale(to, item, head, 0), scale(from, item, head, 0),
                  static_cast<std::size_t>(page_tokens_) * sizeof(float));
    }
  };
  for (std::size_t item = 0; page_tokens_ > 0 && item < tables_.size(); ++item) {
    for (std::int64_t head = 0; head < heads_; ++head) move(static_cast<std::int64_t>(item), head);
  }
  larger.pages_ = larger.tables_.size();
  *this = std::move(larger);
}

void KVPages::release(std::int64_t item, std::int64_t tokens) noexcept {
  if (!paged_) return;
  auto& table = tables_[static_cast<std::size_t>(item)];
  const auto wanted = static_cast<std::size_t>(pages_for(tokens, page_tokens_));
  for (; table.size() > wanted; table.pop_back()) free_.push_back(table.back());
}

// Rows from token `first` on to the front of an item that is not paged.
void KVPages::move_up(std::int64_t item, std::int64_t first, std::int64_t tokens) noexcept {
  for (std::int64_t head = 0; head < heads_; ++head) {
    for (const PagePart* part : {&keys_, &values_}) {
      if (values_in_keys_ && part == &values_) break;  // they have moved
      std::memmove(row(*part, item, head, 0), row(*part, item, head, first),
                   static_cast<std::size_t>(tokens * part->row));
      if (!scaled_) continue;
      std::memmove(scale(*part, item, head, 0), scale(*part, item, head, first),
                   static_cast<std::size_t>(tokens) * sizeof(float));
    }
  }
}

std::int64_t KVPages::forget(std::int64_t item, std::int64_t tokens, std::int64_t length) noexcept {
  if (!paged_) {
    const std::int64_t left = length - tokens;
    if (!worth_moving(tokens, left)) return 0;
    if (left > 0) move_up(item, tokens, left);
    return tokens;
  }
  auto& table = tables_[static_cast<std::size_t>(item)];
  const std::int64_t pages = tokens / page_tokens_;
  for (std::int64_t i = 0; i < pages; ++i) free_.push_back(table[static_cast<std::size_t>(i)]);
  table.erase(table.begin(), table.begin() + pages);
  return pages * page_tokens_;
}

KVPages KVPages::clone() const {
  KVPages copy = *this;
  copy.slabs_.clear(), copy.free_.clear(), copy.pages_ = 0;
  for (std::size_t item = 0; item < tables_.size(); ++item) {
    auto& table = copy.tables_[item];
    if (table.empty()) continue;
    const auto pages = static_cast<std::int64_t>(table.size());
    copy.slabs_.push_back(Tensor::empty({pages, page_bytes_}, DType::u8));
    auto* first = static_cast<std::byte*>(copy.slabs_.back().raw());
    for (void*& page : table) {
      std::memcpy(first, page, static_cast<std::size_t>(page_bytes_));
      page = first;
      first += page_bytes_;
    }
    copy.pages_ += table.size();
  }
  copy.free_.reserve(copy.pages_);
  return copy;
}

std::byte* KVPages::page(std::int64_t item, std::int64_t token) const {
  return static_cast<std::byte*>(
      tables_[static_cast<std::size_t>(item)][static_cast<std::size_t>(token / page_tokens_)]);
}

std::byte* KVPages::row(const PagePart& part, std::int64_t item, std::int64_t head, std::int64_t token) const {
  return page(item, token) + part.offset + (head * page_tokens_ + token % page_tokens_) * part.row;
}

float* KVPages::scale(const PagePart& part, std::int64_t item, std::int64_t head, std::int64_t token) const {
  return reinterpret_cast<float*>(page(item, token) + part.scales) + head * page_tokens_ + token % page_tokens_;
}

std::size_t KVPages::bytes() const noexcept { return pages_ * static_cast<std::size_t>(page_bytes_); }

}  // namespace attn
