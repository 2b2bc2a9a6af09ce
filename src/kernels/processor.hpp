// Asks what the processor can do, since the compilers' own queries do not know all of it.
#pragma once

namespace attn::kernels {

bool has_avx2();  // with fma and f16c
bool has_avx512();
bool has_avx512bf16();

bool has_avx_vnni();
bool has_dot_product();  // of bytes, on 64-bit Arm

// Also asks the kernel of the system, once, to let this process use the tile registers.
bool has_amx_bf16();

}  // namespace attn::kernels
