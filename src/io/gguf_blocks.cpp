// The layouts are those of ggml's block_q4_0, block_q4_K, … (ggml/src/ggml-common.h); a scale is a float16.
#include "io/gguf_blocks.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace attn::io {
namespace {

using Byte = std::uint8_t;

Byte byte(const std::byte* at) { return std::to_integer<Byte>(*at); }
Byte low(Byte b) { return b & 15; }
Byte high(Byte b) { return b >> 4; }

std::uint32_t number(const std::byte* at, int bytes) {
  std::uint32_t value = 0;
  for (int i = bytes; i-- > 0;) value = value << 8 | byte(at + i);
  return value;
}

float half(const std::byte* at) {
  float16 value;
  value.bits = static_cast<std::uint16_t>(number(at, 2));
  return static_cast<float>(value);
}

void widen_f32(const std::byte* block, float* out) { *out = std::bit_cast<float>(number(block, 4)); }
void widen_f16(const std::byte* block, float* out) { *out = half(block); }
void widen_bf16(const std::byte* block, float* out) { *out = std::bit_cast<float>(number(block, 2) << 16); }

// 32 elements of four bits: the first half of them in the low bits of 16 bytes, the other in the high ones.
template <class F>
void widen_nibbles(const std::byte* bytes, float* out, F&& value) {
  for (int i = 0; i < 16; ++i) {
    out[i] = value(low(byte(bytes + i)));
    out[i + 16] = value(high(byte(bytes + i)));
  }
}

// scale · (q - 8)
void widen_q4_0(const std::byte* block, float* out) {
  const float scale = half(block);
  widen_nibbles(block + 2, out, [&](Byte q) { return scale * static_cast<float>(q - 8); });
}

// scale · q + least
void widen_q4_1(const std::byte* block, float* out) {
  const float scale = half(block), least = half(block + 2);
  widen_nibbles(block + 4, out, [&](Byte q) { return scale * static_cast<float>(q) + least; });
}

void widen_q8_0(const std::byte* block, float* out) {
  const float scale = half(block);
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(static_cast<std::int8_t>(byte(block + 2 + i)));
}

// Blocks of 256 elements, in eight parts of 32, each with a scale and a least value of 6 bits, which 12 bytes hold: the
// first four of either kind as the low bits of a byte each, the others as a nibble and the two bits that are left.
struct PartScales {
  float scale[8], least[8];

  explicit PartScales(const std::byte* block) {
    const float of_scales = half(block), of_least = half(block + 2);
    const std::byte* packed = block + 4;
    for (int part = 0; part < 8; ++part) {
      const int left = part % 4;
      const Byte a = byte(packed + left), b = byte(packed + left + 4), c = byte(packed + left + 8);
      const int of_a = part < 4 ? a & 63 : low(c) | a >> 6 << 4;
      const int of_b = part < 4 ? b & 63 : high(c) | b >> 6 << 4;
      scale[part] = of_scales * static_cast<float>(of_a), least[part] = of_least * static_cast<float>(of_b);
    }
  }
};

constexpr int kPart = 32;

// Of two parts each, the first in the low bits of 32 bytes, the second in the high ones.
template <class F>
void widen_parts(const std::byte* nibbles, const PartScales& scales, float* out, F&& fifth_bit) {
  for (int part = 0; part < 8; ++part) {
    for (int i = 0; i < kPart; ++i) {
      const Byte both = byte(nibbles + part / 2 * kPart + i);
      const int q = (part % 2 == 0 ? low(both) : high(both)) + fifth_bit(part, i);
      out[part * kPart + i] = scales.scale[part] * static_cast<float>(q) - scales.least[part];
    }
  }
}

void widen_q4_k(const std::byte* block, float* out) {
  widen_parts(block + 16, PartScales(block), out, [](int, int) { return 0; });
}

void widen_q5_k(const std::byte* block, float* out) {
  const std::byte* fifth = block + 16;
  widen_parts(block + 48, PartScales(block), out, [&](int part, int i) { return (byte(fifth + i) >> part & 1) << 4; });
}

// 256 elements of 6 bits in two halves of four parts of 32: four bits in `lower`, two in `upper`; a scale of 8 bits for
// 16 elements.
void widen_q6_k(const std::byte* block, float* out) {
  const std::byte *lower = block, *upper = block + 128, *scales = block + 192;
  const float scale = half(block + 208);
  for (int part = 0; part < 8; ++part) {
    const int side = part / 4, place = part % 4;
    for (int i = 0; i < kPart; ++i) {
      const Byte both = byte(lower + 64 * side + place % 2 * kPart + i);
      const int q = (place < 2 ? low(both) : high(both)) | (byte(upper + kPart * side + i) >> 2 * place & 3) << 4;
      const auto own = static_cast<std::int8_t>(byte(scales + 8 * side + 2 * place + i / 16));
      out[part * kPart + i] = scale * static_cast<float>(own) * static_cast<float>(q - 32);
    }
  }
}

}  // namespace

const GgufBlock* gguf_block(std::uint32_t type) noexcept {
  static constexpr GgufBlock f32{"F32", 1, 4, widen_f32}, f16{"F16", 1, 2, widen_f16}, bf16{"BF16", 1, 2, widen_bf16},
      q4_0{"Q4_0", 32, 18, widen_q4_0}, q4_1{"Q4_1", 32, 20, widen_q4_1}, q8_0{"Q8_0", 32, 34, widen_q8_0},
      q4_k{"Q4_K", 256, 144, widen_q4_k}, q5_k{"Q5_K", 256, 176, widen_q5_k}, q6_k{"Q6_K", 256, 210, widen_q6_k};
  switch (static_cast<GgufType>(type)) {
    case GgufType::f32:
      return &f32;
    case GgufType::f16:
      return &f16;
    case GgufType::bf16:
      return &bf16;
    case GgufType::q4_0:
      return &q4_0;
    case GgufType::q4_1:
      return &q4_1;
    case GgufType::q8_0:
      return &q8_0;
    case GgufType::q4_k:
      return &q4_k;
    case GgufType::q5_k:
      return &q5_k;
    case GgufType::q6_k:
      return &q6_k;
  }
  return nullptr;
}

std::string_view name(GgufType type) noexcept {
  const GgufBlock* block = gguf_block(static_cast<std::uint32_t>(type));
  return block ? block->name : "unknown";
}

}  // namespace attn::io
