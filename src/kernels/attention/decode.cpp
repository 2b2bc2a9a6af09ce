// Decode with multiply-adds of float32, for the unit's table.
#include "kernels/attention/float_decode.hpp"
#include "kernels/table.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

std::size_t scratch(const Problem& p, const ForwardPlan& plan) {
  return with_stored(p, [&]<class E>(E) { return bytes_of<Decoder<FloatDecode<E>>>(p, plan); });
}

void run(const Problem& p, const ForwardPlan& plan, const ForwardResult& result, int phase, std::int64_t task,
         void* shared, void* scratch) {
  with_stored(p, [&]<class E>(E) { run_decode<FloatDecode<E>>(p, plan, result, phase, task, shared, scratch); });
}

}  // namespace

extern const DecodeKernel decode_kernel;
const DecodeKernel decode_kernel{{decode_shared, scratch, run}, kDecodeQueries, kChunkKeys};

}  // namespace attn::kernels::ATTN_UNIT
