// The recurrences of AMX: those of bf16 inputs by chunks on tiles, others as AVX-512 has them.
#include "kernels/amx/recurrence.hpp"

#include "kernels/recurrence/backward.hpp"

namespace attn::kernels::ATTN_UNIT {

extern const RecurrenceKernel recurrence_kernel;
const RecurrenceKernel recurrence_kernel{kPanel, forward_chunks_scratch, forward_chunks,
                                         kChunk, backward_scratch,       backward_chunks};

}  // namespace attn::kernels::ATTN_UNIT
