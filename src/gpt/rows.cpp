#include "gpt/rows.hpp"

#include <string>

#include "attn/error.hpp"

namespace attn {

void add_in_place(const Tensor& to, const Tensor& from) {
  auto* sum = to.data<float>();
  const auto* more = from.data<float>();
  for_runs(to.numel(), 1, [=](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) sum[i] += more[i];
  });
}

void scale_in_place(const Tensor& x, double factor) {
  if (factor == 1) return;
  auto* value = x.data<float>();
  const auto by = static_cast<float>(factor);
  for_runs(x.numel(), 1, [=](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) value[i] *= by;
  });
}

void require_float32(const char* op, const char* what, const Tensor& x) {
  if (!x.defined() || x.dtype() != DType::f32) {
    throw Error(Error::Kind::dtype, op, std::string(what) + " of dtype float32",
                x.defined() ? name(x.dtype()) : "no tensor");
  }
}

}  // namespace attn
