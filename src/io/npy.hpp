// NumPy's array format, shared by .npy and .npz.
#pragma once

#include <bit>
#include <cstddef>
#include <string>

#include "attn/io.hpp"
#include "attn/tensor.hpp"
#include "io/bytes.hpp"

namespace attn::io {

// A first member, or the end of a zip without any.
inline bool starts_a_zip(Bytes bytes) noexcept {
  return as_text(bytes).starts_with("PK\x03\x04") || as_text(bytes).starts_with("PK\x05\x06");
}

struct NpyHeader {
  Extent extent;  // shape and bytes of the elements
  DType dtype = DType::f32;
  std::endian order = std::endian::little;
  bool fortran = false;
  std::size_t offset = 0;  // where the elements begin
};

// No header of an array of up to eight dimensions is longer: magic, version, length, dict.
inline constexpr std::size_t kMaxNpyHeader = 12 + 65535;

inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

// Needs the array's first kMaxNpyHeader bytes, or all when there are fewer.
NpyHeader parse_npy_header(Bytes start, const Origin& origin);

// Room for the header's elements, one after the other; and the tensor once they have been put there.
Tensor npy_storage(const NpyHeader& header);
Tensor npy_tensor(const Tensor& storage, const NpyHeader& header);

// As parse_npz(), or with a name the array of that name alone, whatever else is in the archive. Where that is not
// there, the names of all arrays come without their tensors.
NamedTensors parse_npz_named(Bytes bytes, std::string_view source, std::string_view name, std::uint64_t max_bytes);

// NumPy can hold what this returns: bfloat16 becomes float32; row-major, little-endian.
Tensor npy_storable(const Tensor& tensor);
// The bytes before the elements of a storable tensor, version 1.0.
std::string npy_header(const Tensor& tensor);

}  // namespace attn::io
