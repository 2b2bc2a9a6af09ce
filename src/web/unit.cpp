// The kernels of a page: it records every step, by the reference, and does not train; and a text that goes on takes the
// way of a whole one.
#include <cstddef>

#include "kernels/model/gated.hpp"
#include "kernels/model/gelu.hpp"
#include "kernels/model/layer_norm.hpp"
#include "kernels/model/rms_norm.hpp"
#include "kernels/recurrence/forward.hpp"
#include "kernels/simd/limits.hpp"
#include "kernels/table.hpp"

namespace attn::kernels {
namespace scalar {
namespace {

void run_panels(const Recurrence& p, const RecurrenceResult& result, std::int64_t first, std::int64_t panels,
                void* scratch) {
  Workspace memory{static_cast<float*>(scratch)};
  ForwardPanels(p, first, panels, memory).run(result);
}

constexpr RecurrenceKernel kRecurrence{.panel = kPanel, .forward_scratch = forward_scratch, .forward = run_panels};
constexpr ModelKernel kModel{
    .narrow = narrow, .layer_norm = layer_norm, .rms_norm = rms_norm, .gelu = gelu, .gated = gated};

}  // namespace

extern const ProductKernel product_kernel;
extern const FewRowsKernel few_rows_kernel;

}  // namespace scalar

extern const Kernels kernels_scalar;
constinit const Kernels kernels_scalar{
    .isa = "scalar",
    .product = &scalar::product_kernel,
    .few_rows = &scalar::few_rows_kernel,
    .recurrence = &scalar::kRecurrence,
    .model = &scalar::kModel,
};

}  // namespace attn::kernels
