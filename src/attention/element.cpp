#include "attention/element.hpp"

#include <optional>

#include "attn/error.hpp"

namespace attn {

namespace {

std::optional<kernels::Element> element_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
      return kernels::Element::f32;
    case DType::bf16:
      return kernels::Element::bf16;
    case DType::f16:
      return kernels::Element::f16;
    case DType::i8:
      return kernels::Element::i8;
    default:
      return std::nullopt;
  }
}

}  // namespace

bool has_element(DType dtype) noexcept { return element_of(dtype).has_value(); }

kernels::Element element(DType dtype) {
  if (const auto found = element_of(dtype)) return *found;
  throw Error(Error::Kind::dtype, "kernels", "float32, bfloat16, float16, or int8 of a cache", name(dtype));
}

}  // namespace attn
