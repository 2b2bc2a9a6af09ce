// Points in at most three dimensions to draw: as they are, or by their principal components.
#pragma once

#include <vector>

#include "attn/tensor.hpp"

namespace attn::report_page {

struct Projection {
  Tensor axes;                    // (d, 3) orthonormal columns; undefined when d <= 3: points stand as they are
  std::vector<double> explained;  // each axis' share of the variance; empty when d <= 3
};

// Principal components of the rows of x (n, d), the same for the same x: each axis has its largest part positive.
// Subspace iteration with Rayleigh-Ritz (Golub and Van Loan, Matrix Computations, section 8.2.4).
Projection principal_axes(const Tensor& x);
// (n, 3): x · axes, or x with zeros for the dimensions that it lacks. Not centred: the origin stays the origin.
Tensor projected(const Tensor& x, const Projection& projection);

}  // namespace attn::report_page
