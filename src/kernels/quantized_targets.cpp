// Which kernels multiply quantised matrices: for those of an instruction set there are further ones, where processors
// may or may not have the instructions that add products of bytes.
#include "kernels/quantized_targets.hpp"

#include <array>

#include "kernels/processor.hpp"
#include "kernels/table.hpp"

namespace attn::kernels {

namespace scalar {
extern const QuantizedKernel quantized_kernel;
}
#if defined(__x86_64__)
namespace avx2 {
extern const QuantizedKernel quantized_kernel;
}
namespace avxvnni {
extern const QuantizedKernel quantized_kernel;
}
namespace avx512 {
extern const QuantizedKernel quantized_kernel;
}
namespace avx512vnni {
extern const QuantizedKernel quantized_kernel;
}
#elif defined(__aarch64__)
namespace neon {
extern const QuantizedKernel quantized_kernel;
}
namespace neondot {
extern const QuantizedKernel quantized_kernel;
}
#endif

std::span<const QuantizedTarget> quantized_targets() {
#if defined(__x86_64__)
  static const std::array<QuantizedTarget, 5> all{
      {{"scalar", "scalar", &scalar::quantized_kernel, true},
       {"avx2", "avx2", &avx2::quantized_kernel, has_avx2()},
       {"avxvnni", "avx2", &avxvnni::quantized_kernel, has_avx2() && has_avx_vnni()},
       {"avx512", "avx512", &avx512::quantized_kernel, has_avx512()},
       {"avx512vnni", "avx512", &avx512vnni::quantized_kernel, has_avx512() && __builtin_cpu_supports("avx512vnni")}}};
#elif defined(__aarch64__)
  static const std::array<QuantizedTarget, 3> all{{{"scalar", "scalar", &scalar::quantized_kernel, true},
                                                   {"neon", "neon", &neon::quantized_kernel, true},
                                                   {"neondot", "neon", &neondot::quantized_kernel, has_dot_product()}}};
#else
  static const std::array<QuantizedTarget, 1> all{{{"scalar", "scalar", &scalar::quantized_kernel, true}}};
#endif
  return all;
}

const QuantizedKernel& quantized(const Kernels& kernels) {
  const std::string_view isa = kernels.isa, of = isa == "amx" || isa == "avx512bf16" ? "avx512" : isa;
  const QuantizedKernel* best = &scalar::quantized_kernel;
  for (const QuantizedTarget& target : quantized_targets())
    best = target.of == of && target.supported ? target.kernel : best;
  return *best;
}

}  // namespace attn::kernels
