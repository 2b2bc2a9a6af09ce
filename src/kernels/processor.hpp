// What the processor can do that the compilers' own queries do not all know.
#pragma once

namespace attn::kernels {

bool has_avx512bf16();

// Also asks the kernel of the system, once, to let this process use the tile registers.
bool has_amx_bf16();

}  // namespace attn::kernels
