#include "attn/quantized.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "attn/error.hpp"
#include "core/parallel.hpp"

namespace attn {
namespace {

constexpr std::int64_t kGroup = QuantizedMatrix::kGroup;

// The forms of codes that the kernels multiply.
bool is_known(const BlockForm& f) {
  const bool is_short = f.bits == 4 || f.bits == 6;
  return (is_short && f.block == 32) || (is_short && f.block == 16 && f.nested) ||
         (f.bits == 8 && f.block == 32 && !f.nested);
}

BlockForm checked(const BlockForm& f, std::int64_t rows, std::int64_t width) {
  if (!is_known(f)) {
    throw Error(
        Error::Kind::argument, "QuantizedMatrix",
        "codes of 4 or 6 bits in blocks of 32, or of 16 if nested, or of 8 bits in blocks of 32, not nested",
        std::to_string(f.bits) + " bits in blocks of " + std::to_string(f.block) + (f.nested ? ", nested" : ""));
  }
  constexpr std::int64_t most = std::int64_t{1} << 40;  // sizes in bytes do not overflow
  const bool fits = rows > 0 && rows <= most && width > 0 && width <= most && width % f.shared() == 0;
  if (!fits) {
    throw Error(Error::Kind::shape, "QuantizedMatrix",
                "from 1 to 2^40 rows of a multiple of " + std::to_string(f.shared()) + " numbers, from 1 to 2^40",
                std::to_string(rows) + " of " + std::to_string(width));
  }
  return f;
}

// 16 codes of a row, a byte each. Words of 16 rows lie side by side: of four bits two share a word, its low halves and
// its high ones; of six bits a word more has the upper two bits of all four.
using Codes = std::array<std::uint32_t, 4>;
constexpr int kCodes = 16;
constexpr std::int64_t kNextWord = 4 * kGroup;  // bytes

std::uint32_t word_at(const std::uint8_t* at) {
  std::uint32_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

void put_codes(const std::uint8_t* codes, int bits, std::uint8_t* at) {
  Codes words;
  std::memcpy(words.data(), codes, sizeof words);
  if (bits == 6) {
    const std::uint32_t mask = 0x03030303;
    const std::uint32_t upper = (words[0] >> 4 & mask) | (words[1] >> 4 & mask) << 2 | (words[2] >> 4 & mask) << 4 |
                                (words[3] >> 4 & mask) << 6;
    std::memcpy(at + 2 * kNextWord, &upper, sizeof upper);
    for (std::uint32_t& word : words) word &= 0x0f0f0f0f;
  }
  if (bits < 8) words = {words[0] | words[1] << 4, words[2] | words[3] << 4};
  for (std::size_t i = 0; i < (bits < 8 ? 2U : 4U); ++i, at += kNextWord) std::memcpy(at, &words[i], sizeof words[i]);
}

void take_codes(const std::uint8_t* at, int bits, std::uint8_t* codes) {
  Codes words;
  for (std::int64_t i = 0; i < 4; ++i) {
    auto& word = words[static_cast<std::size_t>(i)];
    word = bits == 8 ? word_at(at + i * kNextWord) : word_at(at + i / 2 * kNextWord) >> 4 * (i % 2) & 0x0f0f0f0f;
    if (bits == 6) word |= (word_at(at + 2 * kNextWord) >> 2 * i & 0x03030303) << 4;
  }
  std::memcpy(codes, words.data(), sizeof words);
}

// Bytes of 16 rows' scales for one run: two bytes each, or for each of its blocks one.
std::int64_t record_bytes(const BlockForm& f) {
  const std::int64_t kinds = f.has_least ? 2 : 1;
  return kinds * kGroup * (2 + (f.nested ? f.shared() / f.block : 0));
}

// Bytes of 16 rows' 16 codes.
std::int64_t piece_bytes(const BlockForm& f) { return kCodes * kGroup * f.bits / 8; }

void put_half(float value, std::byte* at) {
  const std::uint16_t bits = float16(value).bits;
  std::memcpy(at, &bits, 2);
}

float half_at(const std::byte* at) {
  float16 half;
  std::memcpy(&half.bits, at, 2);
  return static_cast<float>(half);
}

bool holds(float value) { return std::isnan(value) || static_cast<float>(float16(value)) == value; }

bool has_levels(const BlockForm& f) { return f.bits == 4 && !f.has_least; }

}  // namespace

void widen(const BlockForm& f, const BlockRun& run, float* out) noexcept {
  for (int first = 0; first < f.shared(); first += f.block) {
    const auto block = static_cast<std::size_t>(first / f.block);
    const float scale = f.nested ? run.scale * static_cast<float>(run.scales[block]) : run.scale;
    const float least = f.nested ? run.least * static_cast<float>(run.leasts[block]) : run.least;
    for (int i = first; i < first + f.block; ++i) {
      const std::uint8_t code = run.codes[static_cast<std::size_t>(i)];
      const int level = has_levels(f) ? f.levels[code] : code;
      const float value = scale * static_cast<float>(level - f.zero);
      out[i] = f.has_least ? value + least : value;
    }
  }
}

QuantizedMatrix::QuantizedMatrix(std::int64_t rows, std::int64_t width, const BlockForm& form)
    : rows_(rows), width_(width), form_(checked(form, rows, width)) {
  const std::int64_t groups = (rows + kGroup - 1) / kGroup;
  codes_ = Tensor::empty({groups, width * kGroup * form.bits / 8}, DType::u8);
  scales_ = Tensor::empty({groups, width / form.shared() * record_bytes(form)}, DType::u8);
  // Rows behind the last are computed with the others of their group.
  for (const Tensor* t : {&codes_, &scales_})
    std::memset(t->select(0, groups - 1).raw(), 0, static_cast<std::size_t>(t->size(1)));
}

std::size_t QuantizedMatrix::bytes() const noexcept {
  return static_cast<std::size_t>(codes_.numel() + scales_.numel());
}

std::uint8_t* QuantizedMatrix::code_words(std::int64_t row, std::int64_t run) const noexcept {
  const std::int64_t before = run * form_.shared() * kGroup * form_.bits / 8;
  return codes_.data<std::uint8_t>() + row / kGroup * codes_.size(1) + before + row % kGroup * 4;
}

// The float16 scales of 16 rows, then their leasts; where they are nested, for each block its 16 numbers likewise.
std::byte* QuantizedMatrix::scale_record(std::int64_t row, std::int64_t run) const noexcept {
  return static_cast<std::byte*>(scales_.raw()) + row / kGroup * scales_.size(1) + run * record_bytes(form_);
}

bool QuantizedMatrix::set(std::int64_t row, std::int64_t run, const BlockRun& from) noexcept {
  const std::int64_t lane = row % kGroup, kinds = form_.has_least ? 2 : 1;
  std::byte* record = scale_record(row, run);
  put_half(from.scale, record + 2 * lane);
  if (form_.has_least) put_half(from.least, record + 2 * (kGroup + lane));
  record += 2 * kinds * kGroup;
  for (int block = 0; form_.nested && block < form_.shared() / form_.block; ++block, record += kinds * kGroup) {
    const auto i = static_cast<std::size_t>(block);
    record[lane] = std::bit_cast<std::byte>(from.scales[i]);
    if (form_.has_least) record[kGroup + lane] = std::bit_cast<std::byte>(from.leasts[i]);
  }
  std::uint8_t* at = code_words(row, run);
  for (int i = 0; i < form_.shared(); i += kCodes, at += piece_bytes(form_))
    put_codes(from.codes.data() + i, form_.bits, at);
  return holds(from.scale) && (!form_.has_least || holds(from.least));
}

void QuantizedMatrix::read(std::int64_t row, float* out) const noexcept {
  const std::int64_t lane = row % kGroup, kinds = form_.has_least ? 2 : 1;
  BlockRun run;
  for (std::int64_t first = 0; first < width_; first += form_.shared()) {
    const std::byte* record = scale_record(row, first / form_.shared());
    run.scale = half_at(record + 2 * lane);
    if (form_.has_least) run.least = half_at(record + 2 * (kGroup + lane));
    record += 2 * kinds * kGroup;
    for (int block = 0; form_.nested && block < form_.shared() / form_.block; ++block, record += kinds * kGroup) {
      const auto i = static_cast<std::size_t>(block);
      run.scales[i] = std::bit_cast<std::int8_t>(record[lane]);
      if (form_.has_least) run.leasts[i] = std::bit_cast<std::int8_t>(record[kGroup + lane]);
    }
    const std::uint8_t* at = code_words(row, first / form_.shared());
    for (int i = 0; i < form_.shared(); i += kCodes, at += piece_bytes(form_))
      take_codes(at, form_.bits, run.codes.data() + i);
    widen(form_, run, out + first);
  }
}

Tensor QuantizedMatrix::read(std::int64_t first, std::int64_t last) const {
  if (first < 0 || first > last || last > rows_) {
    throw Error(Error::Kind::argument, "QuantizedMatrix", "rows of " + std::to_string(rows_),
                "rows from " + std::to_string(first) + " to " + std::to_string(last));
  }
  const Tensor all = Tensor::empty({last - first, width_});
  parallel_for(last - first, 0, static_cast<double>(8 * all.numel()),
               [&](std::int64_t i, void*) { read(first + i, all.data<float>() + i * width_); });
  return all;
}

}  // namespace attn
