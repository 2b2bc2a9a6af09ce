// Positions and frequencies → angles → cos and sin.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "attn/error.hpp"
#include "attn/rotary.hpp"
#include "core/decimal.hpp"
#include "core/rows.hpp"

namespace attn {
namespace {

constexpr const char* kTable = "rotary";

void check(const RotaryFrequencies& f, std::int64_t last) {
  if (f.inv_freq.empty()) throw Error(Error::Kind::argument, kTable, "a frequency for each pair", "none");
  if (!std::isfinite(static_cast<float>(f.attention_factor))) {
    throw Error(Error::Kind::argument, kTable, "a finite attention_factor", shortest_decimal(f.attention_factor));
  }
  for (const float rate : f.inv_freq) {
    if (std::isfinite(static_cast<float>(last) * rate)) continue;
    throw Error(Error::Kind::argument, kTable, "finite frequencies, and angles in float32's range",
                shortest_decimal(rate) + " radians a token, at position " + std::to_string(last));
  }
}

const Tensor& checked_positions(const Tensor& positions) {
  if (!positions.defined() || positions.dtype() != DType::i64) {
    throw Error(Error::Kind::dtype, kTable, "positions of int64",
                positions.defined() ? name(positions.dtype()) : "no tensor");
  }
  if (positions.rank() < 1 || positions.rank() > 2) {
    throw Error(Error::Kind::shape, kTable, "positions (t) or (b, t)", positions.shape().str());
  }
  return positions;
}

// The largest of contiguous positions; none may be negative.
std::int64_t last_of(const Tensor& positions) {
  const auto* p = positions.data<std::int64_t>();
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < positions.numel(); ++i) {
    if (p[i] < 0) throw Error(Error::Kind::argument, kTable, "positions of at least 0", std::to_string(p[i]));
    last = std::max(last, p[i]);
  }
  return last;
}

Shape table_shape(const Shape& positions, std::int64_t half) {
  Shape shape = positions;
  shape.push_back(half);
  return shape;
}

// position(i) is that of row i.
template <class F>
RotaryTable table_of(const RotaryFrequencies& f, const Shape& positions, const F& position) {
  const auto half = static_cast<std::int64_t>(f.inv_freq.size());
  const Shape shape = table_shape(positions, half);
  const RotaryTable table{Tensor::empty(shape), Tensor::empty(shape), f.layout};
  auto *cos = table.cos.data<float>(), *sin = table.sin.data<float>();
  const auto factor = static_cast<float>(f.attention_factor);
  constexpr double kOperations = 100;  // of a cosine and a sine
  const auto row = [&](std::int64_t i) {
    const auto at = static_cast<float>(position(i));
    for (std::int64_t c = 0; c < half; ++c) {
      const double angle = at * f.inv_freq[static_cast<std::size_t>(c)];  // rounded to float32, as a model's angles are
      cos[i * half + c] = static_cast<float>(std::cos(angle)) * factor;
      sin[i * half + c] = static_cast<float>(std::sin(angle)) * factor;
    }
  };
  for_runs(
      positions.numel(), kOperations * static_cast<double>(half),
      [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t i = first; i < first + count; ++i) row(i);
      },
      16);
  return table;
}

}  // namespace

RotaryTable rotary_table(const RotaryFrequencies& frequencies, const Tensor& positions) {
  const Tensor all = checked_positions(positions).contiguous();
  check(frequencies, last_of(all));
  return table_of(frequencies, all.shape(), [p = all.data<std::int64_t>()](std::int64_t i) { return p[i]; });
}

RotaryTable rotary_table(const RotaryFrequencies& frequencies, std::int64_t tokens, std::int64_t offset) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (tokens < 0 || offset < 0 || offset > kMost - tokens) {
    throw Error(Error::Kind::argument, kTable, "positions from 0 to 2^63 - 1",
                std::to_string(tokens) + " from " + std::to_string(offset) + " on");
  }
  check(frequencies, offset + tokens);
  return table_of(frequencies, {tokens}, [offset](std::int64_t i) { return offset + i; });
}

RotaryTable rotary_rows(const RotaryTable& table, const Tensor& positions) {
  const Tensor all = checked_positions(positions).contiguous();
  for (const Tensor* t : {&table.cos, &table.sin}) {
    require_float32(kTable, "cos and sin", *t);
    if (t->rank() != 2 || !(t->shape() == table.cos.shape())) {
      throw Error(Error::Kind::shape, kTable, "cos and sin of one shape (positions, rotary_dim / 2)", t->shape().str());
    }
  }
  const std::int64_t rows = table.cos.size(0), half = table.cos.size(1), last = all.numel() > 0 ? last_of(all) : -1;
  if (last >= rows) {
    throw Error(Error::Kind::argument, kTable, "positions below the table's " + std::to_string(rows),
                std::to_string(last));
  }
  const RotaryTable result{Tensor::empty(table_shape(all.shape(), half)), Tensor::empty(table_shape(all.shape(), half)),
                           table.layout};
  const Tensor cos = table.cos.contiguous(), sin = table.sin.contiguous();
  for (std::int64_t i = 0; i < all.numel(); ++i) {
    const std::int64_t from = all.data<std::int64_t>()[i] * half;
    std::copy_n(cos.data<float>() + from, half, result.cos.data<float>() + i * half);
    std::copy_n(sin.data<float>() + from, half, result.sin.data<float>() + i * half);
  }
  return result;
}

}  // namespace attn
