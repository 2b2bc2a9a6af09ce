// Projections on the kernels' matrix core; by the reference where the dtype asks for it.
#pragma once

#include <optional>

#include "attn/attention.hpp"
#include "attn/module.hpp"
#include "attn/quantized.hpp"
#include "attn/reference.hpp"

namespace attn {

struct ProductOptions {
  Precision precision = Precision::highest;
  std::optional<DType> dtype = {};          // of the result; x's unless given
  Tensor residual = {};                     // float32 of the result's shape, contiguous: added to it
  Tensor scales = {};                       // float32 (rows) of an int8 weight: what its rows are multiplied by
  const QuantizedMatrix* blocks = nullptr;  // the weight, whose tensor then has no numbers
  bool weight_gradient = true;              // false: the backward product of the weight and the bias may be left out
};

// As reference::project and reference::project_backward, for float32 in products of `precision`; sums are float32's,
// and a row of the result has the same bits whatever other rows there are. x, weight and dy may be float32 and bfloat16
// side by side: a weight in bfloat16 under float32 rows takes half the memory, and half the time where reading it is
// what takes time; one in int8, with scales, takes a quarter, and has no gradient. Of a gradient the options are dx's.
// A finite sum past its dtype's range becomes the largest finite value forward, and infinite in a gradient.
Tensor project(const Tensor& x, const Tensor& weight, const Tensor& bias, const ProductOptions& options = {});
reference::ProjectGradient project_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, bool has_bias,
                                            const ProductOptions& options = {});
// layer.forward(x), and layer.backward(dy, x), in the layer's precision, with the other options.
Tensor linear(const Linear& layer, const Tensor& x, DType dtype);
Tensor linear_backward(Linear& layer, const Tensor& dy, const Tensor& x, DType dtype, const Tensor& residual = {});

// A float32 tensor in bfloat16, on all threads.
Tensor rounded(const Tensor& x);

// Returns the dtype that is kept between products of this precision: bfloat16 where they round to it anyway.
DType stored(Precision precision);
// Returns the same for a layer's products. Where its weight is in blocks they take float32.
DType stored(const Linear& layer);

// The part of project() for few rows (m, d_in) of float32 or bfloat16, of an int8 weight without its scales; `fits`
// becomes false when a result is not finite. Each element has the same bits as in a product of more rows.
bool has_few_rows(const Tensor& x, const Tensor& weight, Precision precision);
Tensor project_few_rows(const Tensor& rows, const Tensor& weight, const Tensor& bias, Precision precision, bool& fits);

// The part of project() for rows (m, d_in) of float32 or bfloat16 by a quantised matrix. At the highest precision it is
// in float32. At medium, each block of a row is rounded to bytes, whole multiples of a 127th of its largest magnitude,
// and at high what this leaves is a second row of bytes, so that 15 bits are kept. A row has the same bits whatever
// other rows there are; `fits` as above.
Tensor project_quantized(const Tensor& rows, const QuantizedMatrix& weight, const Tensor& bias, Precision precision,
                         bool& fits);

}  // namespace attn
