// Dense products of bf16 parts, for the unit's table.
#include "kernels/bf16/product.hpp"

#include "kernels/table.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

bool run(const Product& p, const ProductPlan& plan, const void* packed, const TaskSource& tasks, void* scratch) {
  [[maybe_unused]] const Session session;
  return run_product<MatrixProduct>(p, plan, packed, tasks, scratch);
}

// Sums and rows of a in L2. So that a strip of rows stays in L1, and panels in L2, with all their parts.
constexpr int kHeight = 96;

}  // namespace

extern const ProductKernel product_kernel;
const ProductKernel product_kernel{
    {packed_bytes<MatrixProduct>, bytes_of<ProductScratch<MatrixProduct>>, run_pack<MatrixProduct>, run},
    kColumns,
    kHeight,
    MatrixProduct::kStrip,
    kMostParts,
    kWorksBeside,
    {{kBlockDepth, 32, kHeight, 12, 4 * kHeight},
     {kBlockDepth * 3 / 8, 16, kHeight, 12, 2 * kHeight},
     {kBlockDepth / 4, 12, kHeight, 12, 2 * kHeight}}};

}  // namespace attn::kernels::ATTN_UNIT
