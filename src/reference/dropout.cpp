// dropout: w · keep / (1 - p). Srivastava et al. 2014; the "inverted" form, so that eval mode does nothing.
#include "attn/reference.hpp"
#include "core/decimal.hpp"
#include "reference/elementwise.hpp"

namespace attn::reference {

Tensor dropout(const Tensor& w, const Tensor& keep, double p) {
  if (!(p >= 0 && p <= 1)) throw Error(Error::Kind::argument, "dropout", "p in [0, 1]", shortest_decimal(p));
  const Tensor kept = choose("dropout", w, keep, 0);
  if (p == 1) return kept;  // nothing was kept; 1 / (1 - p) would be infinite
  const double factor = 1 / (1 - p);
  return scale(kept, w.dtype() == DType::f64 ? factor : static_cast<float>(factor));
}

}  // namespace attn::reference
