#include "attention/element.hpp"

#include "attn/error.hpp"

namespace attn {

kernels::Element element(DType dtype) {
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
      throw Error(Error::Kind::dtype, "kernels", "float32, bfloat16, float16, or int8 of a cache", name(dtype));
  }
}

}  // namespace attn
