// Matrices that stay quantised, in blocks: each element of a row is a code of four, six or eight bits, and elements
// side by side share a scale.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "attn/tensor.hpp"

namespace attn {

// value = scale · (level(code) - zero) + least. A block's scale, and its least, are float16; or, `nested`, 256 elements
// share two of them, and each block has a whole number from -128 to 127 that its scale, and its least, are multiplied
// by.
struct BlockForm {
  int bits = 8;         // of a code: 4, 6, or 8 if not nested
  int block = 32;       // elements that share a scale: 32, or 16 if nested
  bool nested = false;  //
  bool has_least = false;
  int zero = 0;                           // 0 where there is a least
  std::array<std::uint8_t, 16> levels{};  // of codes of 4 bits without a least; other codes are their own

  int shared() const { return nested ? 256 : block; }  // elements that share float16s
};

// A run of `shared()` elements in the form that BlockForm describes, each code a byte.
struct BlockRun {
  float scale = 0, least = 0;
  std::array<std::int8_t, 16> scales{}, leasts{};  // of its blocks, where they are nested
  std::array<std::uint8_t, 256> codes{};
};

// (rows, width), in the order in which the kernels read: 16 rows at a time, of each block the scales, and of four
// elements side by side the codes.
class QuantizedMatrix {
 public:
  static constexpr std::int64_t kGroup = 16;  // rows

  // Width is a multiple of form.shared(). Throws Error for another width, and for a form that is not told above.
  QuantizedMatrix(std::int64_t rows, std::int64_t width, const BlockForm& form);

  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t width() const noexcept { return width_; }
  const BlockForm& form() const noexcept { return form_; }
  std::size_t bytes() const noexcept;

  // Elements [run · form.shared(), …) of a row become these. Threads may set different rows of any group at once, where
  // no two of them set the same row. Returns false, and sets nothing of use, where float16 does not hold the scales.
  bool set(std::int64_t row, std::int64_t run, const BlockRun& from) noexcept;
  // A row, which is one of them, as float32: the numbers that its blocks stand for, exactly.
  void read(std::int64_t row, float* out) const noexcept;
  // Rows [first, last), contiguous. Throws Error (argument) where they are not there.
  Tensor read(std::int64_t first, std::int64_t last) const;

  // Both are cut into groups of rows, of equal size.
  const Tensor& codes() const noexcept { return codes_; }
  const Tensor& scales() const noexcept { return scales_; }

 private:
  std::uint8_t* code_words(std::int64_t row, std::int64_t run) const noexcept;
  std::byte* scale_record(std::int64_t row, std::int64_t run) const noexcept;

  std::int64_t rows_, width_;
  BlockForm form_;
  Tensor codes_, scales_;  // uint8 (groups, bytes of a group)
};

// The numbers of a run.
void widen(const BlockForm& form, const BlockRun& run, float* out) noexcept;

}  // namespace attn
