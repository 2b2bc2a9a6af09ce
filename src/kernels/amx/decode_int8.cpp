// Decode of an int8 cache by products of bytes, for the unit's table.
#include "kernels/amx/decode_int8.hpp"

#include "kernels/table.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

void run(const Problem& p, const ForwardPlan& plan, const ForwardResult& result, int phase, std::int64_t task,
         void* shared, void* scratch) {
  [[maybe_unused]] const Session session;
  run_decode<Int8Decode>(p, plan, result, phase, task, shared, scratch);
}

}  // namespace

extern const DecodeKernel decode_kernel;
const DecodeKernel decode_kernel{{decode_shared, bytes_of<Decoder<Int8Decode>>, run}, kDecodeQueries, kChunkKeys};

}  // namespace attn::kernels::ATTN_UNIT
