// The unit's products of bf16 pairs: kRowStep, kDepthStep, kMostParts, multiply_in_turn().
#pragma once

#if defined(ATTN_AMX)
#include "kernels/amx/multiply.hpp"
#else
#include "kernels/vdpbf16/multiply.hpp"
#endif
