// A KVCache holds this state.
#pragma once

#include <vector>

#include "attention/kv_cache_pages.hpp"

namespace attn {

struct KVCache::State {
  KVCacheConfig config;
  KVPages pages;
  std::vector<std::int64_t> lengths;
};

}  // namespace attn
