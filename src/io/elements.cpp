#include "io/elements.hpp"

#include <algorithm>
#include <cstring>

#include "attn/error.hpp"

namespace attn::io {

std::span<std::byte> elements_of(const Tensor& contiguous) noexcept {
  const std::size_t bytes = static_cast<std::size_t>(contiguous.numel()) * size_of(contiguous.dtype());
  return {static_cast<std::byte*>(contiguous.raw()), bytes};
}

void make_native(std::span<std::byte> elements, DType dtype, std::endian order) noexcept {
  const std::size_t width = size_of(dtype);
  if (order != std::endian::native && width > 1) {
    for (std::size_t i = 0; i + width <= elements.size(); i += width) {
      std::reverse(elements.begin() + static_cast<std::ptrdiff_t>(i),
                   elements.begin() + static_cast<std::ptrdiff_t>(i + width));
    }
  }
  if (dtype == DType::boolean) {
    for (std::byte& b : elements) b = b == std::byte{0} ? b : std::byte{1};
  }
}

Tensor tensor_from(Bytes elements, const Shape& shape, DType dtype, std::endian order) {
  Tensor tensor = Tensor::empty(shape, dtype);
  const auto target = elements_of(tensor);
  if (!target.empty()) std::memcpy(target.data(), elements.data(), target.size());
  make_native(target, dtype, order);
  return tensor;
}

Tensor storable(const Tensor& tensor) {
  if constexpr (std::endian::native == std::endian::little) {
    return tensor.contiguous();
  } else {
    Tensor swapped = tensor.clone();
    make_native(elements_of(swapped), swapped.dtype(), std::endian::little);
    return swapped;
  }
}

void require_defined(const Tensor& tensor, std::string_view op) {
  if (!tensor.defined()) throw Error(Error::Kind::argument, op, "a tensor with elements", "an undefined tensor");
}

}  // namespace attn::io
