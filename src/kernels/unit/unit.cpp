// Compiled once for every instruction set, with ATTN_UNIT naming it: the one source of its kernels.
#include "kernels/table.hpp"
#include "kernels/unit/forward.hpp"

#define ATTN_STRING_OF(x) #x
#define ATTN_STRING(x) ATTN_STRING_OF(x)
#define ATTN_JOIN_OF(a, b) a##b
#define ATTN_JOIN(a, b) ATTN_JOIN_OF(a, b)

namespace attn::kernels {

extern const Kernels ATTN_JOIN(kernels_, ATTN_UNIT);
const Kernels ATTN_JOIN(kernels_, ATTN_UNIT){
    ATTN_STRING(ATTN_UNIT),
    ATTN_UNIT::task_count,
    ATTN_UNIT::forward_scratch,
    ATTN_UNIT::forward,
};

}  // namespace attn::kernels
