// Dense products in float32, of many rows and of few, for the unit's table.
#include "kernels/product/few_rows.hpp"
#include "kernels/product/float_product.hpp"
#include "kernels/table.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

std::size_t few_rows_scratch(const FewRows&, const FewRowsPlan&) { return 0; }

bool few_rows(const FewRows& p, const FewRowsPlan& plan, std::int64_t task, void*) {
  if (p.element == Element::i8) return run_few_rows(p, plan, task, FloatPass<std::int8_t>{p});
  if (p.element == Element::bf16) return run_few_rows(p, plan, task, FloatPass<std::uint16_t>{p});
  return run_few_rows(p, plan, task, FloatPass<float>{p});
}

// A block of b, of so many columns, and the sums of a task's rows stay in 1 MB of L2; a strip of rows does in L1.
constexpr int kDepth = 384, kWide = 256 / kColumns, kHigh = 384;
static_assert(kDepth <= kMostDepth);

}  // namespace

extern const ProductKernel product_kernel;
const ProductKernel product_kernel{{packed_bytes<FloatProduct>, bytes_of<ProductScratch<FloatProduct>>,
                                    run_pack<FloatProduct>, run_product<FloatProduct>},
                                   kColumns,
                                   8 * kRows,
                                   FloatProduct::kStrip,
                                   0,
                                   true,
                                   {{kDepth, kWide, kHigh, kWide, kHigh}}};

extern const FewRowsKernel few_rows_kernel;
const FewRowsKernel few_rows_kernel{{few_rows_scratch, few_rows}, kTaskOutputs};

}  // namespace attn::kernels::ATTN_UNIT
