#include "io/safetensors_file.hpp"

#include <utility>

#include "io/elements.hpp"

namespace attn::io {

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : SafetensorsFile(std::make_shared<RandomAccessFile>(path, "load_safetensors")) {}

SafetensorsFile::SafetensorsFile(std::shared_ptr<const RandomAccessFile> file) : file_(std::move(file)) {
  const Origin origin{"load_safetensors", source()};
  std::array<std::byte, kSafetensorsLengthBytes> first{};
  if (file_->size() < first.size()) {
    origin.fail("a header length of 8 bytes", std::to_string(file_->size()) + " bytes");
  }
  file_->read(0, first);
  const std::uint64_t length = safetensors_header_length(first, file_->size(), origin);
  Buffer buffer(length);
  file_->read(first.size(), buffer.unused());
  buffer.use(length);
  data_ = first.size() + length;
  header_ = parse_safetensors_header(as_text(buffer.bytes()), origin);
  check_safetensors_layout(header_, file_->size() - data_, origin);
}

Tensor SafetensorsFile::load(const SafetensorsEntry& entry) const {
  const Tensor tensor = Tensor::empty(entry.extent.shape, entry.dtype);
  file_->read(data_ + entry.begin, elements_of(tensor));
  make_native(elements_of(tensor), entry.dtype, std::endian::little);
  return tensor;
}

}  // namespace attn::io
