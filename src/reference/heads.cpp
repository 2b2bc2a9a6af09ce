// split_heads: (b, t, h·d) → (b, h, t, d), and merge_heads back.
#include "attn/reference.hpp"
#include "reference/loops.hpp"

namespace attn::reference {

Tensor split_heads(const Tensor& x, std::int64_t num_heads) {
  require(x.rank() >= 2, "split_heads", "x (…, tokens, d)", x.shape().str());
  require(num_heads > 0 && x.size(-1) % num_heads == 0, "split_heads", "d divisible by num_heads",
          "d = " + std::to_string(x.size(-1)) + ", num_heads = " + std::to_string(num_heads));
  // (…, t, h·d) → (…, t, h, d) → (…, h, t, d): strides alone say it.
  const std::int64_t head_dim = x.size(-1) / num_heads;
  Shape shape = leading(x.shape(), 1), strides = leading(x.strides(), 1);
  shape.push_back(num_heads), shape.push_back(head_dim);
  strides.push_back(head_dim * x.stride(-1)), strides.push_back(x.stride(-1));
  return Tensor::from_blob(x.raw(), shape, strides, x.dtype(), x.storage()).transpose(-3, -2);
}

Tensor merge_heads(const Tensor& x) {
  require(x.rank() >= 3, "merge_heads", "x (…, heads, tokens, head_dim)", x.shape().str());
  // (…, h, t, d) → (…, t, h, d) → (…, t, h·d): the elements must move.
  const Tensor by_token = x.transpose(-3, -2).contiguous();
  Shape shape = leading(by_token.shape(), 2);
  shape.push_back(x.size(-3) * x.size(-1));
  return by_token.view(shape);
}

}  // namespace attn::reference
