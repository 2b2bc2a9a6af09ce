// Decode of an int8 cache by products of bytes, for the unit's table.
#include "kernels/amx/decode_int8.hpp"

#include "kernels/attention/float_decode.hpp"
#include "kernels/table.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

using FloatDecoder = FloatDecode<StoredI8>;

std::int64_t partials(const Problem& p) { return rows_per_key_head(p) * partial_floats(p); }

std::size_t scratch(const Problem& p, const ForwardPlan& plan) {
  const std::size_t bytes = bytes_of<Decoder<Int8Decode>>(p, plan);
  const std::size_t again = bytes_of<Decoder<FloatDecoder>>(p, plan) +
                            static_cast<std::size_t>(partials(p) + round_up(p.d, 16)) * sizeof(float);
  return bytes > again ? bytes : again;
}

// Whether a number of a row is so far below the largest that few of 30 bits would be left of it, while keys may have
// zeros where the largest is.
bool spreads(const float* row, std::int64_t count) {
  float largest = 0, least = __builtin_inff();
  for (std::int64_t i = 0; i < count; ++i) {
    const float magnitude = row[i] < 0 ? -row[i] : row[i];
    largest = magnitude > largest ? magnitude : largest;
    least = magnitude > 0 && magnitude < least ? magnitude : least;
  }
  return least < largest * 0x1p-16f;
}

// Computes the queries that spread once more, in float32. The others keep their bits, whatever is beside them.
void spread_queries_again(const Problem& p, const ForwardPlan& plan, const ForwardResult& result, std::int64_t task,
                          void* shared, float* scratch) {
  const std::int64_t head = task / plan.chunks, size = partial_floats(p);
  const Span span{head / p.hkv, head % p.hkv, 0, rows_per_key_head(p)};
  float *kept = scratch, *line = kept + partials(p), *rest = line + round_up(p.d, 16);
  const auto spread = [&](std::int64_t r) {
    const Query at = query(p, span, r);
    widen(p.element, row(p.q, p.element, span.batch, at.head, at.token), line, p.d);
    return spreads(line, p.d);
  };
  bool any = false;
  for (std::int64_t r = 0; r < span.rows; ++r) any = any || spread(r);
  if (!any) return;
  const auto bytes = static_cast<std::size_t>(size) * sizeof(float);
  for (std::int64_t r = 0; r < span.rows; ++r) __builtin_memcpy(kept + r * size, partial(p, shared, task, r), bytes);
  run_decode<FloatDecoder>(p, plan, result, 0, task, shared, rest);
  for (std::int64_t r = 0; r < span.rows; ++r) {
    if (!spread(r)) __builtin_memcpy(partial(p, shared, task, r), kept + r * size, bytes);
  }
}

void run(const Problem& p, const ForwardPlan& plan, const ForwardResult& result, int phase, std::int64_t task,
         void* shared, void* scratch) {
  {
    [[maybe_unused]] const Session session;
    run_decode<Int8Decode>(p, plan, result, phase, task, shared, scratch);
  }
  if (phase == 0) spread_queries_again(p, plan, result, task, shared, static_cast<float*>(scratch));
}

}  // namespace

extern const DecodeKernel decode_kernel;
const DecodeKernel decode_kernel{{decode_shared, scratch, run}, kDecodeQueries, kChunkKeys};

}  // namespace attn::kernels::ATTN_UNIT
