// Between the elements of a file and those of a Tensor: byte order and booleans.
#pragma once

#include <bit>
#include <cstddef>
#include <span>

#include "attn/tensor.hpp"
#include "io/bytes.hpp"

namespace attn::io {

// A contiguous tensor's elements, as they lie in memory.
std::span<std::byte> elements_of(const Tensor& contiguous) noexcept;

// Makes elements just read into the machine's own, in place: swaps bytes when `order` is not the machine's,
// and turns a boolean's byte into 0 or 1, as any other value is undefined in C++.
void make_native(std::span<std::byte> elements, DType dtype, std::endian order) noexcept;

// A new contiguous tensor of `elements`, which must be exactly `shape` × dtype in size.
Tensor tensor_from(Bytes elements, const Shape& shape, DType dtype, std::endian order);

// `tensor` row-major and little-endian, ready to be written; itself when it is both already.
Tensor storable(const Tensor& tensor);

// Throws Error (argument) for a default-constructed tensor.
void require_defined(const Tensor& tensor, std::string_view op);

}  // namespace attn::io
