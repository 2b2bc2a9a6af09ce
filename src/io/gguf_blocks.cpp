// The layouts are those of ggml's block_q4_0, block_q4_K, … (ggml/src/ggml-common.h); a scale is a float16. Products
// and sums are taken in the order of the gguf package, so that each number has its bits.
#include "io/gguf_blocks.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

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

// Sixteen levels that lie closer where most weights are.
constexpr float kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

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

// The same with a fifth bit of each element, of 32 in a row.
template <class F>
void widen_five_bits(const std::byte* fifth, float* out, F&& value) {
  const std::uint32_t bits = number(fifth, 4);
  for (int i = 0; i < 32; ++i) {
    const Byte both = byte(fifth + 4 + i % 16);
    out[i] = value(static_cast<float>((i < 16 ? low(both) : high(both)) | (bits >> i & 1) << 4));
  }
}

void widen_q5_0(const std::byte* block, float* out) {
  const float scale = half(block);
  widen_five_bits(block + 2, out, [&](float q) { return scale * (q - 16); });
}

void widen_q5_1(const std::byte* block, float* out) {
  const float scale = half(block), least = half(block + 2);
  widen_five_bits(block + 4, out, [&](float q) { return scale * q + least; });
}

void widen_iq4_nl(const std::byte* block, float* out) {
  const float scale = half(block);
  widen_nibbles(block + 2, out, [&](Byte q) { return scale * kLevels[q]; });
}

// A sign, two bits of exponent and one of mantissa, twice their value; the scale is half of a power of two.
void widen_mxfp4(const std::byte* block, float* out) {
  constexpr float doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const std::uint32_t power = byte(block);
  const auto scale = std::bit_cast<float>(power < 2 ? 0x00200000u << power : (power - 1) << 23);
  widen_nibbles(block + 1, out, [&](Byte q) { return scale * doubled[q]; });
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

// 256 elements of two bits: two halves of four parts of 32, each part two bits of the same 32 bytes.
int two_bits(const std::byte* packed, int element) {
  const int side = element / 128, part = element / 32 % 4;
  return byte(packed + 32 * side + element % 32) >> 2 * part & 3;
}

// 16 elements share a scale and a least value, a nibble each.
void widen_q2_k(const std::byte* block, float* out) {
  const std::byte* packed = block + 16;
  const float of_scales = half(block + 80), of_least = half(block + 82);
  for (int i = 0; i < 256; ++i) {
    const Byte both = byte(block + i / 16);
    const float scale = of_scales * static_cast<float>(low(both)), least = of_least * static_cast<float>(high(both));
    out[i] = scale * static_cast<float>(two_bits(packed, i)) - least;
  }
}

// A third bit adds 4 to what is counted from -4; 16 elements share a scale of 6 bits, four of them a nibble and two
// bits.
void widen_q3_k(const std::byte* block, float* out) {
  const std::byte *third = block, *packed = block + 32, *scales = block + 96;
  const float of_scales = half(block + 108);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 16;
    const Byte lower = byte(scales + group % 8), upper = byte(scales + 8 + group % 4);
    const int own = (group < 8 ? low(lower) : high(lower)) | (upper >> 2 * (group / 4) & 3) << 4;
    const float scale = of_scales * static_cast<float>(own - 32);
    const int bit = byte(third + i % 32) >> (i / 32) & 1;
    out[i] = scale * static_cast<float>(two_bits(packed, i) + 4 * bit - 4);
  }
}

// As IQ4_NL, of eight parts of 32 with a scale of 6 bits each: a nibble, and two bits of the 16 before them.
void widen_iq4_xs(const std::byte* block, float* out) {
  const float of_scales = half(block);
  const std::uint32_t upper = number(block + 2, 2);
  for (int part = 0; part < 8; ++part) {
    const Byte both = byte(block + 4 + part / 2);
    const auto own = static_cast<int>((part % 2 == 0 ? low(both) : high(both)) | (upper >> 2 * part & 3) << 4);
    const float scale = of_scales * static_cast<float>(own - 32);
    widen_nibbles(block + 8 + 16 * part, out + 32 * part, [&](Byte q) { return scale * kLevels[q]; });
  }
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
  static constexpr GgufBlock blocks[] = {{GgufType::f32, "F32", 1, 4, widen_f32},
                                         {GgufType::f16, "F16", 1, 2, widen_f16},
                                         {GgufType::bf16, "BF16", 1, 2, widen_bf16},
                                         {GgufType::q4_0, "Q4_0", 32, 18, widen_q4_0},
                                         {GgufType::q4_1, "Q4_1", 32, 20, widen_q4_1},
                                         {GgufType::q5_0, "Q5_0", 32, 22, widen_q5_0},
                                         {GgufType::q5_1, "Q5_1", 32, 24, widen_q5_1},
                                         {GgufType::q8_0, "Q8_0", 32, 34, widen_q8_0},
                                         {GgufType::q2_k, "Q2_K", 256, 84, widen_q2_k},
                                         {GgufType::q3_k, "Q3_K", 256, 110, widen_q3_k},
                                         {GgufType::q4_k, "Q4_K", 256, 144, widen_q4_k},
                                         {GgufType::q5_k, "Q5_K", 256, 176, widen_q5_k},
                                         {GgufType::q6_k, "Q6_K", 256, 210, widen_q6_k},
                                         {GgufType::iq4_nl, "IQ4_NL", 32, 18, widen_iq4_nl},
                                         {GgufType::iq4_xs, "IQ4_XS", 256, 136, widen_iq4_xs},
                                         {GgufType::mxfp4, "MXFP4", 32, 17, widen_mxfp4}};
  const auto* at = std::ranges::find(blocks, static_cast<GgufType>(type), &GgufBlock::type);
  return at == std::end(blocks) ? nullptr : at;
}

std::string gguf_type_name(std::uint32_t type) {
  if (const GgufBlock* block = gguf_block(type)) return std::string(block->name);
  constexpr std::pair<std::uint32_t, std::string_view> refused[] = {
      {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
      {21, "IQ3_S"}, {22, "IQ2_S"}, {24, "I8"},      {25, "I16"},    {26, "I32"},     {27, "I64"},
      {28, "F64"},   {29, "IQ1_M"}, {34, "TQ1_0"},   {35, "TQ2_0"},  {40, "NVFP4"},   {41, "Q1_0"}};
  for (const auto& [number, name] : refused) {
    if (number == type) return std::string(name);
  }
  return std::to_string(type);
}

std::string_view name(GgufType type) noexcept {
  const GgufBlock* block = gguf_block(static_cast<std::uint32_t>(type));
  return block ? block->name : "unknown";
}

}  // namespace attn::io
