#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "attn/error.hpp"
#include "attn/io.hpp"
#include "io/elements.hpp"
#include "io/safetensors_header.hpp"
#include "io/writers.hpp"

namespace attn::io {
namespace {

constexpr std::size_t kLengthBytes = kSafetensorsLengthBytes;

void check_names(const NamedTensors& tensors) {
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : tensors.tensors) {
    require_defined(tensor, "save_safetensors");
    if (name == kMetadataKey || !names.insert(name).second) {
      throw Error(Error::Kind::argument, "save_safetensors", "names that differ, none of them __metadata__",
                  in_quotes(name));
    }
  }
}

std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(Error::Kind::argument, "save_safetensors", "names and metadata in UTF-8", in_quotes(text));
  }
}

// The order of the data: widest elements first, so that every tensor is aligned though no gap is allowed.
std::vector<std::size_t> data_order(const NamedTensors& tensors) {
  std::vector<std::size_t> order(tensors.tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto width = [&](std::size_t i) { return size_of(tensors.tensors[i].second.dtype()); };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return width(a) > width(b); });
  return order;
}

std::string header_of(const NamedTensors& tensors, std::span<const std::size_t> order) {
  std::vector<std::uint64_t> begins(order.size());
  std::uint64_t at = 0;
  const auto bytes = [&](std::size_t i) { return elements_of(tensors.tensors[i].second).size(); };
  for (const std::size_t i : order) {
    begins[i] = at;
    at += bytes(i);
  }
  std::string json = "{";
  const auto comma = [&] { return json.size() == 1 ? "" : ","; };
  if (!tensors.metadata.empty()) {
    for (const auto& [key, value] : tensors.metadata) {
      json.append(json.size() == 1 ? "\"__metadata__\":{" : ",").append(json_string(key));
      json.append(":").append(json_string(value));
    }
    json.append("}");
  }
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const auto& [name, tensor] = tensors.tensors[i];
    json.append(comma()).append(json_string(name)).append(":{\"dtype\":\"").append(safetensors_name(tensor.dtype()));
    json.append("\",\"shape\":")
        .append(nlohmann::json(std::vector(tensor.shape().begin(), tensor.shape().end())).dump());
    json.append(",\"data_offsets\":[").append(std::to_string(begins[i])).append(",");
    json.append(std::to_string(begins[i] + bytes(i))).append("]}");
  }
  json.append("}");
  constexpr std::size_t alignment = 8;
  json.append((alignment - json.size() % alignment) % alignment, ' ');
  if (json.size() > kMostSafetensorsHeader) {
    throw Error(Error::Kind::argument, "save_safetensors", "a header of at most 100 MB", std::to_string(json.size()));
  }
  return json;
}

}  // namespace

NamedTensors parse_safetensors(std::span<const std::byte> bytes, std::string_view source) {
  const Origin origin{"parse_safetensors", source};
  if (bytes.size() < kLengthBytes) {
    origin.fail("a header length of 8 bytes", std::to_string(bytes.size()) + " bytes");
  }
  const std::uint64_t length = safetensors_header_length(bytes, bytes.size(), origin);
  auto header = parse_safetensors_header(as_text(bytes.subspan(kLengthBytes, length)), origin);
  const Bytes data = bytes.subspan(kLengthBytes + length);
  check_safetensors_layout(header, data.size(), origin);
  NamedTensors result;
  result.metadata = std::move(header.metadata);
  for (auto& [name, dtype, extent, begin, end] : header.entries) {
    const Bytes elements = data.subspan(begin, extent.bytes);
    result.tensors.emplace_back(std::move(name), tensor_from(elements, extent.shape, dtype, std::endian::little));
  }
  return result;
}

std::string safetensors_start(const NamedTensors& tensors) {
  check_names(tensors);
  const std::string header = header_of(tensors, data_order(tensors));
  std::string length;
  for (std::size_t i = 0; i < kLengthBytes; ++i) length.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  return length + header;
}

void write_safetensors(OutputFile& file, const NamedTensors& tensors) {
  file.write(safetensors_start(tensors));
  for (const std::size_t i : data_order(tensors)) {
    const Tensor elements = storable(tensors.tensors[i].second);
    file.write(elements_of(elements));
  }
}

std::string safetensors_bytes(const NamedTensors& tensors) {
  std::string file = safetensors_start(tensors);
  for (const std::size_t i : data_order(tensors))
    file.append(as_text(elements_of(storable(tensors.tensors[i].second))));
  return file;
}

void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors) {
  OutputFile file(path, "save_safetensors");
  write_safetensors(file, tensors);
  file.commit();
}

}  // namespace attn::io
