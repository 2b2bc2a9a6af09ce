// Products with quantised matrices, for the unit's table.
#include "kernels/product/quantized.hpp"

namespace attn::kernels::ATTN_UNIT {

extern const QuantizedKernel quantized_kernel;
const QuantizedKernel quantized_kernel{quantized_tasks, run_quantized, round_row, 4 * (128 + kTaskRows) * kColumns};

}  // namespace attn::kernels::ATTN_UNIT
