// Which kernels multiply quantised matrices. AMX's unit takes those of avx512bf16.
#include <string_view>

#include "kernels/product/quantized_problem.hpp"
#include "kernels/table.hpp"

namespace attn::kernels {

namespace scalar {
extern const QuantizedKernel quantized_kernel;
}
#if defined(__x86_64__)
namespace avx2 {
extern const QuantizedKernel quantized_kernel;
}
namespace avx512 {
extern const QuantizedKernel quantized_kernel;
}
namespace avx512bf16 {
extern const QuantizedKernel quantized_kernel;
}
#elif defined(__aarch64__)
namespace neon {
extern const QuantizedKernel quantized_kernel;
}
#endif

const QuantizedKernel& quantized(const Kernels& kernels) {
  const std::string_view isa = kernels.isa;
#if defined(__x86_64__)
  if (isa == "avx2") return avx2::quantized_kernel;
  if (isa == "avx512") return avx512::quantized_kernel;
  if (isa != "scalar") return avx512bf16::quantized_kernel;
#elif defined(__aarch64__)
  if (isa == "neon") return neon::quantized_kernel;
#endif
  return scalar::quantized_kernel;
}

}  // namespace attn::kernels
