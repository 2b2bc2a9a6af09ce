// Rows of a KVCache written and read: converted to the stored dtype, or to int8 and a scale.
#pragma once

#include "attention/kv_cache_pages.hpp"

namespace attn {

// x (hkv, t, width) becomes the item's rows from token `first` on, for which there must be room.
void write_rows(const KVPages& pages, const PagePart& part, DType dtype, std::int64_t item, std::int64_t first,
                const Tensor& x);
// The item's first rows, as many as out (hkv, t, width) holds; out is of the stored dtype or float32, and has unit
// stride in its last dimension.
void read_rows(const KVPages& pages, const PagePart& part, DType dtype, std::int64_t item, const Tensor& out);
// The same of one head: out (t, width).
void read_rows(const KVPages& pages, const PagePart& part, DType dtype, std::int64_t item, std::int64_t head,
               const Tensor& out);

}  // namespace attn
