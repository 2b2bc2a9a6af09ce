// Query heads that share a key head are rows of one list: row r of it is query r % tq of head hkv · (hq / hkv) + r /
// tq. Internal to each file that includes it, as rounding.hpp is.
#pragma once

#include <cstdint>

#include "kernels/problem.hpp"

namespace attn::kernels {
namespace {

struct Query {
  std::int64_t head, token;
};

inline std::int64_t rows_per_key_head(const Problem& p) { return p.hq / p.hkv * p.tq; }

inline Query query_of_row(const Problem& p, std::int64_t key_head, std::int64_t row) {
  if (p.hq == p.hkv) return {key_head, row};  // two divisions would take as long as a small problem's row
  return {key_head * (p.hq / p.hkv) + row / p.tq, row % p.tq};
}

}  // namespace
}  // namespace attn::kernels
