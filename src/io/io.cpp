// Any file: which format, which tensor.
#include "attn/io.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "attn/error.hpp"
#include "io/bytes.hpp"
#include "io/file.hpp"
#include "io/npy.hpp"
#include "io/writers.hpp"

namespace attn::io {
namespace {

// No header is as long as 2^56, so the length's top byte is zero, which no text file holds.
bool looks_like_safetensors(Bytes bytes) {
  return bytes.size() > 8 && bytes[7] == std::byte{0} && bytes[8] == std::byte{'{'};
}

std::string names_of(const NamedTensors& tensors) {
  constexpr std::size_t shown = 20;
  std::string list;
  for (std::size_t i = 0; i < std::min(shown, tensors.tensors.size()); ++i) {
    list.append(i == 0 ? "" : ", ").append(in_quotes(tensors.tensors[i].first));
  }
  if (tensors.tensors.size() > shown) list.append(", … (" + std::to_string(tensors.tensors.size()) + " in all)");
  return list;
}

NamedTensors named(std::string name, const Tensor& tensor) {
  NamedTensors result;
  result.tensors.emplace_back(std::move(name), tensor);
  return result;
}

// Throws Error (argument) for a name without a known extension.
Format format_named(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (path == "-" || extension == ".npy") return Format::npy;
  if (extension == ".csv") return Format::csv;
  if (extension == ".npz") return Format::npz;
  if (extension == ".safetensors") return Format::safetensors;
  throw Error(Error::Kind::argument, "save_tensor", "a path that ends in .npy, .npz, .safetensors or .csv",
              source_name(path));
}

NamedTensors only(Format format, Tensor tensor) {
  NamedTensors result;
  result.format = format;
  result.tensors.emplace_back("", std::move(tensor));
  return result;
}

}  // namespace

const Tensor* NamedTensors::find(std::string_view name) const noexcept {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& entry) { return entry.first == name; });
  return found == tensors.end() ? nullptr : &found->second;
}

NamedTensors parse(std::span<const std::byte> bytes, std::string_view source, std::uint64_t max_bytes) {
  const std::string_view text = as_text(bytes);
  if (starts_a_zip(bytes)) return parse_npz(bytes, source, max_bytes);
  if (text.starts_with(kNpyMagic)) return only(Format::npy, parse_npy(bytes, source));
  if (looks_like_safetensors(bytes)) return parse_safetensors(bytes, source);
  return only(Format::csv, parse_csv(text, source));
}

NamedTensors load(const std::filesystem::path& path, std::uint64_t max_bytes) {
  return parse(read_file(path, "load").bytes(), source_name(path), max_bytes);
}

Tensor load_tensor(const std::filesystem::path& path, std::string_view name, std::uint64_t max_bytes) {
  const NamedTensors file = load(path, max_bytes);
  if (name.empty() && file.tensors.size() == 1) return file.tensors.front().second;
  if (const Tensor* found = name.empty() ? nullptr : file.find(name)) return *found;
  const bool nameless = file.format == Format::npy || file.format == Format::csv;
  throw Error(Error::Kind::argument, "load_tensor",
              name.empty() ? "the name of one tensor of " + source_name(path)
                           : "a tensor named " + in_quotes(name) + " in " + source_name(path),
              file.tensors.empty() ? "no tensors" : (nameless ? "one without a name" : names_of(file)));
}

void write_tensor(OutputFile& file, const std::filesystem::path& path, const Tensor& tensor) {
  switch (format_named(path)) {
    case Format::npy:
      return write_npy(file, tensor);
    case Format::csv:
      return write_csv(file, tensor);
    case Format::npz:
      return write_npz(file, named("arr_0", tensor));  // NumPy's name for an array without one
    case Format::safetensors:
      return write_safetensors(file, named("tensor", tensor));
  }
}

void save_tensor(const std::filesystem::path& path, const Tensor& tensor) {
  format_named(path);
  OutputFile file(path, "save_tensor");
  write_tensor(file, path, tensor);
  file.commit();
}

void save_text(const std::filesystem::path& path, std::string_view text) {
  OutputFile file(path, "save_text");
  file.write(text);
  file.commit();
}

std::vector<std::string> load_lines(const std::filesystem::path& path) {
  const Buffer buffer = read_file(path, "load_lines");
  std::vector<std::string> lines;
  for (std::string_view text = as_text(buffer.bytes()); !text.empty();) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace attn::io
