// Any file: which format, which tensor.
#include "attn/io.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "attn/error.hpp"
#include "attn/gguf.hpp"
#include "io/bytes.hpp"
#include "io/file.hpp"
#include "io/gguf_header.hpp"
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
Format format_to_write(const std::filesystem::path& path) {
  if (path == "-") return Format::npy;
  if (const auto format = format_by_name(path); format && *format != Format::gguf) return *format;
  throw Error(Error::Kind::argument, "save_tensor", "a path that ends in .npy, .npz, .safetensors or .csv",
              source_name(path));
}

// Returns the format of the content; what is nothing else may be CSV.
Format format_by_content(Bytes bytes) {
  if (starts_a_zip(bytes)) return Format::npz;
  if (as_text(bytes).starts_with(kNpyMagic)) return Format::npy;
  if (as_text(bytes).starts_with(kGgufMagic)) return Format::gguf;
  return looks_like_safetensors(bytes) ? Format::safetensors : Format::csv;
}

std::string name_of(Format format) {
  constexpr std::array names{"npy", "npz", "safetensors", "CSV", "GGUF"};  // in the order of the enumeration
  return names[static_cast<std::size_t>(format)];
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t'; }

// How content begins that is of no known format.
std::string beginning(Bytes bytes) {
  constexpr std::size_t most_text = 24, most_bytes = 8, looked_at = 1024;
  if (bytes.empty()) return "an empty file";
  const std::string_view text = as_text(bytes).substr(0, looked_at);
  if (std::none_of(text.begin(), text.end(), is_control)) {
    return "text that begins " + in_quotes(text.substr(0, std::min(text.find('\n'), most_text)));
  }
  std::string digits;
  for (const char c : text.substr(0, most_bytes)) {
    constexpr const char* hex = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    digits.append(" ").append(1, hex[byte / 16]).append(1, hex[byte % 16]);
  }
  return "bytes of another format, which begin" + digits;
}

// Throws Error (data) for content that is no known format, if its name promises one, or if it is no text.
void require_known(const std::filesystem::path& path, Bytes bytes) {
  const std::string found = beginning(bytes);
  const auto promised = format_by_name(path);
  if (promised.value_or(Format::csv) == Format::csv && !found.starts_with("bytes")) return;  // the CSV parser tells
  throw Error(Error::Kind::data, "load",
              promised ? name_of(*promised) + ", as the name of " + source_name(path) + " says"
                       : "npy, npz, safetensors, GGUF or CSV in " + source_name(path),
              found);
}

// "expected …; found …", without the "[op] " before it.
std::string without_op(const Error& error) { return std::string(error.what()).substr(error.op().size() + 3); }

NamedTensors only(Format format, Tensor tensor) {
  NamedTensors result;
  result.format = format;
  result.tensors.emplace_back("", std::move(tensor));
  return result;
}

NamedTensors whole(const Gguf& file) {
  NamedTensors result;
  result.format = Format::gguf;
  for (const GgufTensor& tensor : file.tensors()) result.tensors.emplace_back(tensor.name, file.load(tensor));
  for (const auto& [key, value] : file.metadata()) result.metadata.emplace(key, text_of(value));
  return result;
}

// A file, or with a name of an npz file that array alone, as parse_npz_named() reads it.
NamedTensors load_named(const std::filesystem::path& path, std::string_view name, std::uint64_t max_bytes) {
  const Buffer file = read_file(path, "load");
  const Format content = format_by_content(file.bytes()), promised = format_by_name(path).value_or(content);
  try {
    if (content == Format::npz) return parse_npz_named(file.bytes(), source_name(path), name, max_bytes);
    return parse(file.bytes(), source_name(path), max_bytes);
  } catch (const Error& error) {
    if (content == Format::csv) require_known(path, file.bytes());
    if (content == promised) throw;
    throw Error(error.kind(), "load", name_of(promised) + ", as the name of " + source_name(path) + " says",
                name_of(content) + " that cannot be read: " + without_op(error));
  }
}

}  // namespace

std::optional<Format> format_by_name(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (extension == ".npy") return Format::npy;
  if (extension == ".csv") return Format::csv;
  if (extension == ".npz") return Format::npz;
  if (extension == ".safetensors") return Format::safetensors;
  if (extension == ".gguf") return Format::gguf;
  return std::nullopt;
}

const Tensor* NamedTensors::find(std::string_view name) const noexcept {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& entry) { return entry.first == name; });
  return found == tensors.end() ? nullptr : &found->second;
}

NamedTensors parse(std::span<const std::byte> bytes, std::string_view source, std::uint64_t max_bytes) {
  switch (format_by_content(bytes)) {
    case Format::npz:
      return parse_npz(bytes, source, max_bytes);
    case Format::npy:
      return only(Format::npy, parse_npy(bytes, source));
    case Format::safetensors:
      return parse_safetensors(bytes, source);
    case Format::gguf:
      return whole(Gguf::parse(bytes, source));
    case Format::csv:
      break;
  }
  return only(Format::csv, parse_csv(as_text(bytes), source));
}

NamedTensors load(const std::filesystem::path& path, std::uint64_t max_bytes) {
  return load_named(path, {}, max_bytes);
}

Tensor load_tensor(const std::filesystem::path& path, std::string_view name, std::uint64_t max_bytes) {
  const NamedTensors file = load_named(path, name, max_bytes);
  if (name.empty() && file.tensors.size() == 1) return file.tensors.front().second;
  if (const Tensor* found = name.empty() ? nullptr : file.find(name); found && found->defined()) return *found;
  const bool nameless = file.format == Format::npy || file.format == Format::csv;
  throw Error(Error::Kind::argument, "load_tensor",
              name.empty() ? "the name of one tensor of " + source_name(path)
                           : "a tensor named " + in_quotes(name) + " in " + source_name(path),
              file.tensors.empty() ? "no tensors" : (nameless ? "one without a name" : names_of(file)));
}

void write_tensor(OutputFile& file, const std::filesystem::path& path, const Tensor& tensor) {
  switch (format_to_write(path)) {
    case Format::npy:
      return write_npy(file, tensor);
    case Format::csv:
      return write_csv(file, tensor);
    case Format::npz:
      return write_npz(file, named("arr_0", tensor));  // NumPy's name for an array without one
    case Format::safetensors:
      return write_safetensors(file, named("tensor", tensor));
    case Format::gguf:  // which format_to_write() refuses
      return;
  }
}

std::map<std::string, Tensor> load_state_dict(const std::filesystem::path& path, std::uint64_t max_bytes) {
  std::map<std::string, Tensor> state;
  for (auto& [name, tensor] : load(path, max_bytes).tensors) {
    if (state.emplace(name, std::move(tensor)).second) continue;
    throw Error(Error::Kind::data, "load_state_dict", "every tensor once", in_quotes(name) + " twice");
  }
  return state;
}

void save_tensor(const std::filesystem::path& path, const Tensor& tensor) {
  format_to_write(path);
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
