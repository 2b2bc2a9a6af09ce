// Tensors between ranks.
#pragma once

#include "distributed/block.hpp"

namespace attn::distributed {

inline Bytes bytes_of(const Tensor& t) {
  return {static_cast<const std::byte*>(t.raw()), static_cast<std::size_t>(t.numel()) * size_of(t.dtype())};
}
inline Room room_of(const Tensor& t) {
  return {static_cast<std::byte*>(t.raw()), static_cast<std::size_t>(t.numel()) * size_of(t.dtype())};
}

// to[r] goes to rank r; what comes from rank r has shape shapes[r].
std::vector<Tensor> exchange(Transport& transport, const std::vector<Tensor>& to, const std::vector<Shape>& shapes);

// Every rank's rows of dimension 2, in their places.
Tensor whole_rows(Transport& transport, const Layout& layout, const Tensor& rows);

// (b, h, this rank's rows, …) → (b, this rank's heads, all rows, …), and back. heads[r] are rank r's.
Tensor rows_to_heads(Transport& transport, const Layout& layout, const Tensor& rows, const std::vector<Heads>& heads);
Tensor heads_to_rows(Transport& transport, const Layout& layout, const Tensor& own, const std::vector<Heads>& heads);

// The sum of all ranks' float64, on all of them, added in the order of the ranks. Undefined stays so.
Tensor sum_over_ranks(Transport& transport, const Tensor& part);

}  // namespace attn::distributed
