// The recurrences of one unit.
#include <cstddef>

#include "kernels/recurrence/backward.hpp"
#include "kernels/recurrence/forward.hpp"

namespace attn::kernels::ATTN_UNIT {

extern const RecurrenceKernel recurrence_kernel;
const RecurrenceKernel recurrence_kernel{kPanel, forward_scratch,  forward_panels,
                                         kChunk, backward_scratch, backward_chunks};

}  // namespace attn::kernels::ATTN_UNIT
