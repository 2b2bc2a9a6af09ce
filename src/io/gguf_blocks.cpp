// The layouts are those of ggml's block_q4_0, block_q4_K, … (ggml/src/ggml-common.h); a scale is a float16. Products
// and sums are taken in the order of the gguf package, so that each number has its bits.
#include "io/gguf_blocks.hpp"

#include <algorithm>
#include <array>
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

// 32 codes of four bits: the first half of them in the low bits of 16 bytes, the other in the high ones.
void take_nibbles(const std::byte* bytes, std::uint8_t* codes) {
  for (int i = 0; i < 16; ++i) codes[i] = low(byte(bytes + i)), codes[i + 16] = high(byte(bytes + i));
}

// Sixteen levels that lie closer where most weights are, above the least of them, -127.
constexpr std::array<std::uint8_t, 16> kLevels{0, 23, 44, 62, 78, 92, 105, 117, 128, 140, 152, 165, 180, 196, 216, 240};
constexpr std::array<std::uint8_t, 16> kSame{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
// A sign, two bits of exponent and one of mantissa, twice their value, above -12.
constexpr std::array<std::uint8_t, 16> kFloats{12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

// scale · (q - 8), and IQ4_NL: scale · level
void take_q4_0(const std::byte* block, BlockRun& run) {
  run.scale = half(block);
  take_nibbles(block + 2, run.codes.data());
}

// scale · q + least
void take_q4_1(const std::byte* block, BlockRun& run) {
  run.scale = half(block), run.least = half(block + 2);
  take_nibbles(block + 4, run.codes.data());
}

// Takes nibbles, and a fifth bit of each element from the 32 bits before them.
void take_five_bits(const std::byte* fifth, std::uint8_t* codes) {
  const std::uint32_t bits = number(fifth, 4);
  take_nibbles(fifth + 4, codes);
  for (int i = 0; i < 32; ++i) codes[i] |= static_cast<Byte>((bits >> i & 1) << 4);
}

void take_q5_0(const std::byte* block, BlockRun& run) {
  run.scale = half(block);
  take_five_bits(block + 2, run.codes.data());
}

void take_q5_1(const std::byte* block, BlockRun& run) {
  run.scale = half(block), run.least = half(block + 2);
  take_five_bits(block + 4, run.codes.data());
}

// The scale is half of a power of two.
void take_mxfp4(const std::byte* block, BlockRun& run) {
  const std::uint32_t power = byte(block);
  run.scale = std::bit_cast<float>(power < 2 ? 0x00200000u << power : (power - 1) << 23);
  take_nibbles(block + 1, run.codes.data());
}

// Numbers of eight bits with a sign are codes above -128.
void take_q8_0(const std::byte* block, BlockRun& run) {
  run.scale = half(block);
  for (std::size_t i = 0; i < 32; ++i) run.codes[i] = byte(block + 2 + i) ^ 128;
}

// Blocks of 256 elements, in eight parts of 32, each with a scale and a least value of 6 bits, which 12 bytes hold: the
// first four of either kind as the low bits of a byte each, the others as a nibble and the two bits that are left. The
// least is subtracted.
void take_part_scales(const std::byte* block, BlockRun& run) {
  run.scale = half(block), run.least = -half(block + 2);
  const std::byte* packed = block + 4;
  for (std::size_t part = 0; part < 8; ++part) {
    const std::size_t left = part % 4;
    const Byte a = byte(packed + left), b = byte(packed + left + 4), c = byte(packed + left + 8);
    run.scales[part] = static_cast<std::int8_t>(part < 4 ? a & 63 : low(c) | a >> 6 << 4);
    run.leasts[part] = static_cast<std::int8_t>(part < 4 ? b & 63 : high(c) | b >> 6 << 4);
  }
}

constexpr int kPart = 32;

// Takes the codes of two parts at a time: the first is in the low bits of 32 bytes, the second in the high ones.
void take_part_nibbles(const std::byte* nibbles, std::uint8_t* codes) {
  for (int first = 0; first < 256; first += 2 * kPart, nibbles += kPart, codes += 2 * kPart) {
    for (int i = 0; i < kPart; ++i) codes[i] = low(byte(nibbles + i)), codes[i + kPart] = high(byte(nibbles + i));
  }
}

void take_q4_k(const std::byte* block, BlockRun& run) {
  take_part_scales(block, run);
  take_part_nibbles(block + 16, run.codes.data());
}

void take_q5_k(const std::byte* block, BlockRun& run) {
  take_part_scales(block, run);
  take_part_nibbles(block + 48, run.codes.data());
  Byte* codes = run.codes.data();
  for (int part = 0; part < 8; ++part, codes += kPart) {
    for (int i = 0; i < kPart; ++i) codes[i] |= static_cast<Byte>((byte(block + 16 + i) >> part & 1) << 4);
  }
}

// 256 elements of two bits: two halves of four parts of 32, each part two bits of the same 32 bytes.
void take_two_bits(const std::byte* packed, Byte* codes) {
  for (int part = 0; part < 8; ++part, codes += kPart) {
    for (int i = 0; i < kPart; ++i) codes[i] = byte(packed + part / 4 * kPart + i) >> 2 * (part % 4) & 3;
  }
}

// 16 elements share a scale and a least value, a nibble each. The least is subtracted.
void take_q2_k(const std::byte* block, BlockRun& run) {
  run.scale = half(block + 80), run.least = -half(block + 82);
  for (std::size_t i = 0; i < 16; ++i) {
    run.scales[i] = static_cast<std::int8_t>(low(byte(block + i)));
    run.leasts[i] = static_cast<std::int8_t>(high(byte(block + i)));
  }
  take_two_bits(block + 16, run.codes.data());
}

// A third bit adds 4 to what is counted from -4; 16 elements share a scale of 6 bits, four of them a nibble and two
// bits.
void take_q3_k(const std::byte* block, BlockRun& run) {
  const std::byte *third = block, *packed = block + 32, *scales = block + 96;
  run.scale = half(block + 108);
  for (int group = 0; group < 16; ++group) {
    const Byte lower = byte(scales + group % 8), upper = byte(scales + 8 + group % 4);
    const int own = (group < 8 ? low(lower) : high(lower)) | (upper >> 2 * (group / 4) & 3) << 4;
    run.scales[static_cast<std::size_t>(group)] = static_cast<std::int8_t>(own - 32);
  }
  Byte* codes = run.codes.data();
  take_two_bits(packed, codes);
  for (int part = 0; part < 8; ++part, codes += kPart) {
    for (int i = 0; i < kPart; ++i) codes[i] |= static_cast<Byte>((byte(third + i) >> part & 1) << 2);
  }
}

// Reads eight parts of 32 like IQ4_NL's, each with a scale of 6 bits: a nibble, and two bits of the 16 before them.
void take_iq4_xs(const std::byte* block, BlockRun& run) {
  run.scale = half(block);
  const std::uint32_t upper = number(block + 2, 2);
  for (int part = 0; part < 8; ++part) {
    const Byte both = byte(block + 4 + part / 2);
    const int own = (part % 2 == 0 ? low(both) : high(both)) | static_cast<int>(upper >> 2 * part & 3) << 4;
    run.scales[static_cast<std::size_t>(part)] = static_cast<std::int8_t>(own - 32);
    take_nibbles(block + 8 + part * 16, run.codes.data() + part * kPart);
  }
}

// 256 elements of 6 bits in two halves of four parts of 32: four bits in `lower`, two in `upper`; a scale of 8 bits for
// 16 elements.
void take_q6_k(const std::byte* block, BlockRun& run) {
  const std::byte *lower = block, *upper = block + 128, *scales = block + 192;
  run.scale = half(block + 208);
  for (std::size_t i = 0; i < 16; ++i) run.scales[i] = std::bit_cast<std::int8_t>(scales[i]);
  Byte* codes = run.codes.data();
  take_two_bits(upper, codes);
  for (int part = 0; part < 8; ++part, codes += kPart) {
    const std::byte* nibbles = lower + 64 * (part / 4) + kPart * (part % 2);
    const int shift = part % 4 < 2 ? 0 : 4;
    for (int i = 0; i < kPart; ++i) codes[i] = static_cast<Byte>(codes[i] << 4 | (byte(nibbles + i) >> shift & 15));
  }
}

}  // namespace

void GgufBlock::widen(const std::byte* from, float* out) const {
  if (!take) return widen_one(from, out);
  BlockRun run;
  take(from, run);
  attn::widen(form, run, out);
}

const GgufBlock* gguf_block(std::uint32_t type) noexcept {
  constexpr BlockForm q4_0{4, 32, false, false, 8, kSame}, nl{4, 32, false, false, 127, kLevels},
      fp4{4, 32, false, false, 12, kFloats}, xs{4, 32, true, false, 127, kLevels}, q4_1{4, 32, false, true},
      q4_k{4, 32, true, true}, q5_0{6, 32, false, false, 16}, q5_1{6, 32, false, true}, q5_k{6, 32, true, true},
      q8_0{8, 32, false, false, 128}, q2_k{4, 16, true, true}, q3_k{4, 16, true, false, 4, kSame},
      q6_k{6, 16, true, false, 32};
  static constexpr GgufBlock blocks[] = {
      {GgufType::f32, "F32", 4, {}, nullptr, widen_f32},    {GgufType::f16, "F16", 2, {}, nullptr, widen_f16},
      {GgufType::bf16, "BF16", 2, {}, nullptr, widen_bf16}, {GgufType::q4_0, "Q4_0", 18, q4_0, take_q4_0},
      {GgufType::q4_1, "Q4_1", 20, q4_1, take_q4_1},        {GgufType::q5_0, "Q5_0", 22, q5_0, take_q5_0},
      {GgufType::q5_1, "Q5_1", 24, q5_1, take_q5_1},        {GgufType::q8_0, "Q8_0", 34, q8_0, take_q8_0},
      {GgufType::q2_k, "Q2_K", 84, q2_k, take_q2_k},        {GgufType::q3_k, "Q3_K", 110, q3_k, take_q3_k},
      {GgufType::q4_k, "Q4_K", 144, q4_k, take_q4_k},       {GgufType::q5_k, "Q5_K", 176, q5_k, take_q5_k},
      {GgufType::q6_k, "Q6_K", 210, q6_k, take_q6_k},       {GgufType::iq4_nl, "IQ4_NL", 18, nl, take_q4_0},
      {GgufType::iq4_xs, "IQ4_XS", 136, xs, take_iq4_xs},   {GgufType::mxfp4, "MXFP4", 17, fp4, take_mxfp4}};
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

bool is_quantized(GgufType type) noexcept {
  const GgufBlock* block = gguf_block(static_cast<std::uint32_t>(type));
  return block && block->take;
}

std::string_view name(GgufType type) noexcept {
  const GgufBlock* block = gguf_block(static_cast<std::uint32_t>(type));
  return block ? block->name : "unknown";
}

}  // namespace attn::io
