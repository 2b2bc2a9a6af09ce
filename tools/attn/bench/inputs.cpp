#include "bench/inputs.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>

#include "attn/error.hpp"
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

std::string BenchInputs::key(const std::string& role, DType dtype, const Shape& shape) const {
  return formatted("{} {} {} {}", role, name(dtype), shape.str(), numbers_);
}

Tensor BenchInputs::kept(const std::string& role, const Shape& shape, const Tensor& block) {
  Tensor& tensor = tensors_[key(role, block.dtype(), shape)];
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

void BenchInputs::use(const std::string& numbers) {
  constexpr std::array all{"normal", "one-nan", "nan", "one-inf", "inf", "huge", "subnormal"};
  if (std::find(all.begin(), all.end(), numbers) == all.end()) {
    throw Error(Error::Kind::data, "numbers", joined(std::vector<std::string>(all.begin(), all.end()), ", "), numbers);
  }
  numbers_ = numbers;
}

// A first number of the tensor alone, a share of them, or a factor of all.
Tensor BenchInputs::normal(const std::string& role, const Shape& shape, DType dtype) {
  const double end = std::min(3e38, largest(dtype)), least = 0.25 / end;  // a small part of the least normal number
  const double special = numbers_.ends_with("nan") ? std::nan("") : HUGE_VAL;
  const Tensor block = generator(role).randn({kNumbers});
  for (float& x : std::span(block.data<float>(), kNumbers)) {
    if (numbers_ == "huge") x = static_cast<float>(std::clamp(x * end / 2, -end, end));
    if (numbers_ == "subnormal") x = static_cast<float>(x * least);
    if ((numbers_ == "nan" || numbers_ == "inf") && std::fabs(x) > 2) x = static_cast<float>(std::copysign(special, x));
  }
  const bool is_new = !tensors_.contains(key(role, dtype, shape));
  const Tensor tensor = kept(role, shape, block.to(dtype));
  if (is_new && numbers_.starts_with("one-")) Tensor(tensor).view({-1}).set({tensor.numel() / 2}, special);
  return tensor;
}

Tensor BenchInputs::coins(const std::string& role, const Shape& shape, double chance) {
  return kept(formatted("{} {}", role, chance), shape, generator(role).dropout_keep({kNumbers}, 1 - chance));
}

}  // namespace attn::tool
