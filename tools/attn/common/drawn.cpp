#include "common/drawn.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include "common/format.hpp"
#include "common/inputs.hpp"
#include "core/escape.hpp"
#include "core/suggest.hpp"

namespace attn::tool {
namespace {

constexpr std::array<std::string_view, 4> kKinds{"randn", "rand", "randint", "ones"};
constexpr std::size_t kMostDimensions = 8;

[[noreturn]] void no_drawing(std::string_view who, std::string_view text) {
  const bool integers = text.starts_with("randint");
  refuse(who,
         integers ? "randint:LOW,HIGH:SIZES with LOW below HIGH, such as randint:0,10:3,2"
                  : "up to eight sizes of at least 0, such as randn:4,8,32",
         text, "a file of that name is written ./" + std::string(text));
}

Shape shape_of(std::string_view sizes, std::string_view who, std::string_view text) {
  const auto read = numbers_in(sizes);
  if (!read || read->size() > kMostDimensions || std::ranges::any_of(*read, [](auto n) { return n < 0; })) {
    no_drawing(who, text);
  }
  double bytes = sizeof(float);
  for (const std::int64_t size : *read) bytes *= static_cast<double>(size);
  require_memory(escaped(text), bytes, "draw fewer numbers");
  return Shape(std::span<const std::int64_t>(*read));
}

}  // namespace

bool is_drawn(std::string_view text) {
  return std::ranges::find(kKinds, text.substr(0, text.find(':'))) != kKinds.end() &&
         text.find(':') != std::string_view::npos;
}

bool is_random(std::string_view text) { return is_drawn(text) && !text.starts_with("ones:"); }

void require_drawn_or_there(const std::string& text, std::string_view who) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos || is_drawn(text) || std::filesystem::exists(std::filesystem::path(text))) return;
  const std::string guess = did_you_mean(text.substr(0, colon), {kKinds.begin(), kKinds.end()});
  if (guess.empty()) return;
  refuse(who, "a file, or a tensor to draw: randn:, rand:, ones: or randint:", text, guess);
}

Tensor drawn(std::string_view text, std::string_view who, Generator& rng) {
  const std::string_view kind = text.substr(0, text.find(':'));
  std::string_view rest = text.substr(kind.size() + 1);
  if (kind != "randint") {
    const Shape shape = shape_of(rest, who, text);
    return kind == "rand" ? rng.rand(shape) : kind == "randn" ? rng.randn(shape) : Tensor::ones(shape);
  }
  const std::size_t colon = rest.find(':');
  const auto range = numbers_in(rest.substr(0, colon));
  if (colon == std::string_view::npos || !range || range->size() != 2 || (*range)[0] >= (*range)[1])
    no_drawing(who, text);
  return rng.randint((*range)[0], (*range)[1], shape_of(rest.substr(colon + 1), who, text));
}

}  // namespace attn::tool
