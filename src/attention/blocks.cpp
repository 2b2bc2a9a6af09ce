#include "attention/blocks.hpp"

namespace attn {
namespace {

// One entry a block of keys.
Tensor entries(const Sizes& p, const Mask& mask, std::int64_t b, std::int64_t h, std::int64_t i) {
  return mask.block_keep.expand(block_shape(p, mask)).select(0, b).select(0, h).select(0, i / mask.block_query);
}

bool entry(const Tensor& row, std::int64_t block) { return row.data<bool>()[block * row.stride(0)]; }

}  // namespace

Tensor block_row(const Sizes& p, const Mask& mask, std::int64_t b, std::int64_t h, std::int64_t i) {
  const Tensor row = entries(p, mask, b, h, i);
  Tensor keep = Tensor::empty({p.tk}, DType::boolean);
  for (std::int64_t j = 0; j < p.tk; ++j) keep.data<bool>()[j] = entry(row, j / mask.block_key);
  return keep;
}

Tensor block_cells(const Sizes& p, const Mask& mask) {
  const auto size = [&](std::size_t dim, std::int64_t full) {  // 1 where the mask repeats
    const Shape& shape = mask.block_keep.shape();
    return shape.size() + dim < 4 || shape[shape.size() + dim - 4] == 1 ? std::int64_t{1} : full;
  };
  Tensor keep = Tensor::empty({size(0, p.batch), size(1, p.hq), p.tq, p.tk}, DType::boolean);
  for (std::int64_t b = 0; b < (p.batch == 0 ? 0 : keep.size(0)); ++b) {
    for (std::int64_t h = 0; h < (p.hq == 0 ? 0 : keep.size(1)); ++h) {
      for (std::int64_t i = 0; i < p.tq; ++i)
        keep.select(0, b).select(0, h).select(0, i).copy_from(block_row(p, mask, b, h, i));
    }
  }
  return keep;
}

}  // namespace attn
