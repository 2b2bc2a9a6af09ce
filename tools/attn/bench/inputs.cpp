#include "bench/inputs.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>

#include "attn/random.hpp"
#include "common/format.hpp"
#include "common/inputs.hpp"

namespace attn::tool {
namespace {

// Numbers are drawn for so many elements, and repeated: drawing all of a large tensor would take seconds. An odd
// length, so that rows differ.
constexpr std::int64_t kNumbers = 65537;

Generator generator(const std::string& role) { return Generator(std::hash<std::string>{}(role)&0xffffffffu); }

}  // namespace

Tensor BenchInputs::kept(const std::string& role, const Shape& shape, const Tensor& block) {
  Tensor& tensor = tensors_[formatted("{} {} {}", role, name(block.dtype()), shape.str())];
  if (tensor.defined()) return tensor;
  const auto size = static_cast<std::int64_t>(size_of(block.dtype()));
  bytes_ += static_cast<double>(shape.numel()) * static_cast<double>(size);
  require_memory("the inputs of the list so far", bytes_, "time fewer rows at once (--filter)");
  tensor = Tensor::empty(shape, block.dtype());
  auto* out = static_cast<std::byte*>(tensor.raw());
  for (std::int64_t at = 0; at < tensor.numel(); at += kNumbers) {
    const std::int64_t count = std::min(kNumbers, tensor.numel() - at);
    std::memcpy(out + at * size, block.raw(), static_cast<std::size_t>(count * size));
  }
  return tensor;
}

Tensor BenchInputs::normal(const std::string& role, const Shape& shape, DType dtype) {
  return kept(role, shape, generator(role).randn({kNumbers}).to(dtype));
}

Tensor BenchInputs::coins(const std::string& role, const Shape& shape, double chance) {
  return kept(formatted("{} {}", role, chance), shape, generator(role).dropout_keep({kNumbers}, 1 - chance));
}

}  // namespace attn::tool
