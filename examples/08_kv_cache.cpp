// A decoder's steps: a prompt of four tokens, then one token at a time. Each step appends its key and value to the
// cache and attends to all so far; kept in bfloat16 or int8 the cache is smaller, and the outputs hardly differ.
#include <attn/attn.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>

namespace {

// Largest difference of the last token's output from float32's.
double step_by_step(const attn::Tensor& q, const attn::Tensor& k, const attn::Tensor& v, attn::KVCache& cache,
                    const attn::Tensor& expected) {
  attn::Tensor output;
  for (std::int64_t from = 0, to = 4; to <= k.size(2); from = to++) {
    cache.append(k.slice(2, from, to), v.slice(2, from, to));
    // The queries are the cache's last tokens: the causal diagonal ends bottom right.
    output =
        attn::attention(q.slice(2, from, to), cache, {.mask = attn::Mask::causal(attn::Align::bottom_right)}).output;
  }
  double most = 0;
  for (std::int64_t h = 0; h < output.size(1); ++h) {
    for (std::int64_t c = 0; c < output.size(3); ++c) {
      most = std::max(most, std::abs(output.at({0, h, 0, c}) - expected.at({0, h, k.size(2) - 1, c})));
    }
  }
  return most;
}

}  // namespace

int main() {
  attn::Generator rng(42);
  const attn::Tensor q = rng.randn({1, 4, 12, 64}), k = rng.randn({1, 2, 12, 64}), v = rng.randn({1, 2, 12, 64});
  const attn::Tensor expected = attn::attention(q, k, v, {.mask = attn::Mask::causal()}).output;
  for (const attn::DType dtype : {attn::DType::f32, attn::DType::bf16, attn::DType::i8}) {
    attn::KVCache cache({.kv_heads = 2, .head_dim = 64, .dtype = dtype, .page_size = 16});
    const double error = step_by_step(q, k, v, cache, expected);
    std::cout << attn::name(dtype) << ": " << cache.length(0) << " tokens in " << cache.bytes()
              << " bytes, error below "
              << (error < 1e-5   ? "1e-5"
                  : error < 3e-2 ? "3e-2"
                                 : "1")
              << "\n";
  }
}
