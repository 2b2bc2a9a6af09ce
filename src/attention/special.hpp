// Infinities and NaN among the numbers of a call: where they are, copies without them, and whom they reach. What a mask
// hides reaches nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attn/tensor.hpp"
#include "kernels/problem.hpp"

namespace attn {

// A bit for each column.
using Columns = std::vector<std::uint64_t>;

// A row with infinities or NaN: the columns of +inf and of -inf; NaN is in both.
struct SpecialRow {
  std::int64_t token;
  Columns above, below;
};

// Key heads (b, h), one byte each: those that are looked at. Empty: all of them.
using Heads = std::vector<char>;
inline bool has(const Heads& heads, std::int64_t at) {
  return heads.empty() || heads[static_cast<std::size_t>(at)] != 0;
}

// Those of rows (b, h, t, width) of a floating dtype.
class Specials {
 public:
  explicit Specials(const Tensor& rows, const Heads& heads = {});

  std::span<const SpecialRow> of(std::int64_t b, std::int64_t h) const {
    return heads_[static_cast<std::size_t>(b * per_item_ + h)].special_rows;
  }
  bool any() const { return any_; }
  bool nan() const { return nan_; }

 private:
  struct Head {
    std::vector<SpecialRow> special_rows;
    bool nan = false;

    void look_at(const Tensor& rows, std::int64_t first, std::int64_t count);  // of (t, width)
  };

  std::int64_t per_item_;
  std::vector<Head> heads_;
  bool any_ = false, nan_ = false;
};

// Whether query i of head h sees key j by intervals, masks, blocks and biases of -inf; all numbers are the problem's.
bool sees(const kernels::Problem& p, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j);

// Whether that asks for more than intervals.
bool hides_cells(const kernels::Problem& p);

// Whether there is such a key, or a sink.
bool sees_any(const kernels::Problem& p, std::int64_t b, std::int64_t h, std::int64_t i);

// A float32 copy (b, h, t, width), contiguous: NaN becomes 0, and an infinity `large` of its sign. Other heads are left
// without a value.
Tensor without_specials(const Tensor& rows, float large, const Heads& heads = {});

// Whether `width` numbers of a floating dtype are.
bool is_finite(const void* row, DType dtype, std::int64_t width);

// The columns that are in one of the two become +inf, -inf, or NaN if they are in both. NaN stays.
void put_specials(std::span<float> row, const Columns& above, const Columns& below);

// A finite number past the dtype's range becomes its largest.
void store_saturated(std::span<const float> row, void* to, DType dtype);

}  // namespace attn
