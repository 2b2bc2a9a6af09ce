#include "ops/stored.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attn/error.hpp"
#include "core/lasting.hpp"
#include "core/rows.hpp"
#include "ops/weights.hpp"

namespace attn {
namespace {

constexpr const char* kStoreMatrices = "store_matrices";
constexpr float kMost = 127;  // of int8, on both sides of 0

// value[i] ≈ bytes[i] · scale with the largest magnitude at ±127: no number is off by more than half of the scale. A
// subnormal scale would be rounded too far for that. Returns the scale, or NaN for a row that is not finite.
float to_bytes(std::span<const float> row, std::int8_t* bytes) {
  float most = 0, sum = 0;
  for (const float x : row) most = std::max(most, std::fabs(x)), sum += x - x;
  if (sum != 0) return std::nanf("");  // of infinities and NaN, x - x is NaN
  const float scale = std::max(most / kMost, std::numeric_limits<float>::min());
  std::transform(row.begin(), row.end(), bytes, [scale](float x) {
    return static_cast<std::int8_t>(std::clamp(std::nearbyint(x / scale), -kMost, kMost));
  });
  return scale;
}

void store_bytes(Parameter& matrix) {
  const Tensor from = matrix.value.to(DType::f32).contiguous();
  const std::int64_t rows = from.size(0), width = from.size(1);
  const Tensor bytes = Tensor::empty(from.shape(), DType::i8), scales = Tensor::empty({rows});
  for_runs(
      rows, static_cast<double>(4 * width),
      [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t i = first; i < first + count; ++i) {
          const std::span row(from.data<float>() + i * width, static_cast<std::size_t>(width));
          scales.data<float>()[i] = to_bytes(row, bytes.data<std::int8_t>() + i * width);
        }
      },
      16);
  const float* scale = scales.data<float>();
  if (std::any_of(scale, scale + rows, [](float x) { return std::isnan(x); })) {
    throw Error(Error::Kind::argument, kStoreMatrices, "finite numbers in " + matrix.name, "NaN or infinities",
                "keep it in float32 or bfloat16");
  }
  matrix.value = bytes, matrix.scales = scales;
}

}  // namespace

void keep_blocks(Parameter& matrix, std::shared_ptr<const QuantizedMatrix> blocks) {
  // Its dtype is none of gradients, or of files.
  static const Tensor& nothing = lasting([] { return Tensor::zeros({1}, DType::i8); });
  matrix.value = nothing.expand({blocks->rows(), blocks->width()}), matrix.blocks = std::move(blocks);
}

void store_matrices(std::span<Parameter* const> parameters, DType dtype) {
  if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::i8) {
    throw Error(Error::Kind::dtype, kStoreMatrices, "float32, bfloat16 or int8", name(dtype));
  }
  for (Parameter* p : parameters) {
    if (p->value.rank() != 2) continue;
    require_present(*p);
    if (p->scales.defined()) {
      throw Error(Error::Kind::argument, kStoreMatrices, p->name + " in float32 or bfloat16", "int8",
                  "load the model again");
    }
    if (p->blocks) {
      throw Error(Error::Kind::argument, kStoreMatrices, p->name + " in float32 or bfloat16", "blocks of a file",
                  "load the model in this dtype");
    }
    if (dtype == DType::i8) {
      store_bytes(*p);
    } else {
      p->value = p->value.to(dtype);
    }
  }
}

Tensor rows_of(const Parameter& matrix, std::int64_t first, std::int64_t last) {
  require_present(matrix);
  if (matrix.blocks) return matrix.blocks->read(first, last);
  const Tensor rows = matrix.value.slice(0, first, last).to(DType::f32).contiguous();
  if (!matrix.scales.defined()) return rows;
  const std::int64_t width = rows.size(1);
  const Tensor scaled = Tensor::empty(rows.shape());
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    const float scale = matrix.scales.data<float>()[first + i];
    const float* from = rows.data<float>() + i * width;
    std::transform(from, from + width, scaled.data<float>() + i * width, [scale](float x) { return x * scale; });
  }
  return scaled;
}

}  // namespace attn
