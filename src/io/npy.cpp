#include "io/npy.hpp"

#include <cstring>
#include <utility>

#include "attn/io.hpp"
#include "io/elements.hpp"
#include "io/writers.hpp"

namespace attn::io {

Tensor npy_storage(const NpyHeader& header) {
  Shape shape = header.extent.shape;
  if (header.fortran) {
    for (std::size_t i = 0; i < shape.size() / 2; ++i) std::swap(shape[i], shape[shape.size() - 1 - i]);
  }
  return Tensor::empty(shape, header.dtype);
}

Tensor npy_tensor(const Tensor& storage, const NpyHeader& header) {
  make_native(elements_of(storage), header.dtype, header.order);
  if (!header.fortran) return storage;
  // Column-major is the row-major order of the reversed shape: the same elements, with the strides reversed.
  Shape strides = storage.strides();
  for (std::size_t i = 0; i < strides.size(); ++i) strides[i] = storage.strides()[strides.size() - 1 - i];
  return Tensor::from_blob(storage.raw(), header.extent.shape, strides, header.dtype, storage.storage());
}

Tensor parse_npy(std::span<const std::byte> bytes, std::string_view source) {
  const Origin origin{"parse_npy", source};
  const NpyHeader header = parse_npy_header(bytes, origin);
  const Bytes elements = bytes.subspan(header.offset);
  if (elements.size() != header.extent.bytes) {
    origin.fail(std::to_string(header.extent.bytes) + " bytes for the elements of " + header.extent.shape.str() + " " +
                    std::string(name(header.dtype)),
                std::to_string(elements.size()) + " bytes",
                elements.size() < header.extent.bytes ? "the file is cut off, or its header lies" : "");
  }
  const Tensor storage = npy_storage(header);
  if (!elements.empty()) std::memcpy(storage.raw(), elements.data(), elements.size());
  return npy_tensor(storage, header);
}

Tensor npy_storable(const Tensor& tensor) {
  return storable(tensor.dtype() == DType::bf16 ? tensor.to(DType::f32) : tensor);
}

void write_npy(OutputFile& file, const Tensor& tensor) {
  require_defined(tensor, "save_npy");
  const Tensor elements = npy_storable(tensor);
  file.write(npy_header(elements));
  file.write(elements_of(elements));
}

void save_npy(const std::filesystem::path& path, const Tensor& tensor) {
  OutputFile file(path, "save_npy");
  write_npy(file, tensor);
  file.commit();
}

}  // namespace attn::io
