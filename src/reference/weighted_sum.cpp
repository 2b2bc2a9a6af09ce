// weighted_sum: z_i = Σ_j w_ij · v_j, the context vectors.
#include "attn/reference.hpp"
#include "reference/loops.hpp"
#include "reference/matmul.hpp"

namespace attn::reference {

Tensor weighted_sum(const Tensor& w, const Tensor& v) {
  require(w.rank() >= 2 && v.rank() >= 2 && w.size(-1) == v.size(-2), "weighted_sum", "w (…, tq, tk) and v (…, tk, dv)",
          w.shape().str() + " and " + v.shape().str());
  return matmul(w, v, Zero::skips);
}

WeightedSumGradient weighted_sum_backward(const Tensor& dz, const Tensor& w, const Tensor& v) {
  return {matmul(dz, v.transpose(-1, -2)),                // z = w · v
          matmul(w.transpose(-1, -2), dz, Zero::skips)};  // z = w · v
}

}  // namespace attn::reference
