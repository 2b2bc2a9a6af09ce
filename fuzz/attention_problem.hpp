// A problem for the operator, made of bytes.
#pragma once

#include "attn/attention.hpp"
#include "attn/kv_cache.hpp"
#include "bytes.hpp"

namespace attn::fuzz {

struct Sizes {
  std::int64_t b, hq, hkv, tq, tk, d, dv;
};

// Elements by a random function of a seed, and sometimes special ones among them.
class Elements {
 public:
  explicit Elements(Bytes& bytes);

  // Contiguous, from `low` to `high`; special elements too, or the finite ones of them.
  Tensor tensor(const Shape& shape, DType dtype, double low = -1, double high = 1, bool finite = false);
  Tensor booleans(const Shape& shape, double share);
  double uniform(double low, double high);
  std::int64_t number(std::int64_t low, std::int64_t high);

 private:
  std::uint64_t next();
  double special();

  std::uint64_t state_;
  int specials_;  // how many among 256
  int kinds_;     // which
};

// The same elements behind other strides: padded, reversed, two dimensions swapped in memory, one of size 1 expanded.
Tensor scattered(Bytes& bytes, const Tensor& t);

Sizes sizes_of(Bytes& bytes);
AttentionOptions options_of(Bytes& bytes, Elements& elements, const Sizes& s, DType dtype);

}  // namespace attn::fuzz
