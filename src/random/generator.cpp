// PyTorch's CPU generator: mt19937 and the ways in which rand, randn, randint and bernoulli draw from it.
#include <bit>
#include <cmath>
#include <locale>
#include <numbers>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "attn/error.hpp"
#include "attn/random.hpp"
#include "core/decimal.hpp"
#include "core/known.hpp"
#include "random/mcg31.hpp"

namespace attn {
namespace {

constexpr std::int64_t kBlock = 16;  // randn transforms blocks of sixteen

float unit_float(std::uint32_t u) { return static_cast<float>(u & 0xffffffu) * 0x1p-24f; }
double unit_double(std::uint64_t u) { return static_cast<double>(u & 0x1fffffffffffffu) * 0x1p-53; }

// Box and Muller 1958, on eight pairs (d[j], d[j + 8]) of uniforms.
void normal_block(float* d) {
  for (int j = 0; j < 8; ++j) {
    const float u1 = 1 - d[j];
    const float r = std::sqrt(-2 * std::log(u1));
    const float t = static_cast<float>(2 * std::numbers::pi) * d[j + 8];
    d[j] = r * std::cos(t);
    d[j + 8] = r * std::sin(t);
  }
}

}  // namespace

std::string_view name(DropoutFlavour flavour) noexcept {
  switch (flavour) {
    case DropoutFlavour::native:
      return "native";
    case DropoutFlavour::mkl:
      return "mkl";
    case DropoutFlavour::philox:
      return "philox";
  }
  return "unknown";  // a number that was cast
}

DropoutFlavour dropout_flavour(std::string_view text) {
  if (text == "mkl") return DropoutFlavour::mkl;
  if (text == "native") return DropoutFlavour::native;
  if (text == "philox") return DropoutFlavour::philox;
  throw Error(Error::Kind::argument, "dropout flavour", "mkl, native or philox", text);
}

struct Generator::State {
  std::mt19937 engine;
  std::optional<double> next_normal;  // the second of a pair, kept for the next small randn
  DropoutFlavour flavour;
};

Generator::Generator(std::uint64_t seed, DropoutFlavour flavour) : state_(std::make_shared<State>()) {
  require_known("Generator", "a dropout flavour", flavour, DropoutFlavour::philox);
  state_->flavour = flavour;
  manual_seed(seed);
}

void Generator::manual_seed(std::uint64_t seed) {
  state_->engine.seed(static_cast<std::uint32_t>(seed));
  state_->next_normal.reset();
}

DropoutFlavour Generator::flavour() const noexcept { return state_->flavour; }

namespace {

// A program's locale may group digits by blanks, which would join numbers that blanks separate.
std::stringstream plain_text() {
  std::stringstream text;
  text.imbue(std::locale::classic());
  return text;
}

}  // namespace

// The engine as the standard writes it, in decimal numbers; then whether a normal is kept, and its bits.
Tensor Generator::state() const {
  std::stringstream text = plain_text();
  text << state_->engine;
  std::vector<std::int64_t> all;
  for (std::int64_t word = 0; text >> word;) all.push_back(word);
  all.push_back(state_->next_normal.has_value());
  all.push_back(std::bit_cast<std::int64_t>(state_->next_normal.value_or(0)));
  return Tensor::from(std::span<const std::int64_t>(all), {static_cast<std::int64_t>(all.size())});
}

void Generator::set_state(const Tensor& state) {
  const auto fail = [](std::string_view found) {
    return Error(Error::Kind::data, "Generator", "a state as state() gives it", found);
  };
  if (!state.defined() || state.dtype() != DType::i64 || state.rank() != 1) throw fail("another tensor");
  const Tensor words = state.contiguous();
  if (words.numel() != this->state().numel()) throw fail(std::to_string(words.numel()) + " numbers");
  const auto* word = words.data<std::int64_t>();
  const std::int64_t count = words.numel() - 2;
  std::stringstream text = plain_text();
  for (std::int64_t i = 0; i < count; ++i) {
    // Reading "-1" into an unsigned number does not fail.
    if (word[i] < 0 || word[i] > 0xffffffff) throw fail("a number past 32 bits");
    text << word[i] << ' ';
  }
  std::mt19937 engine;
  if (!(text >> engine)) throw fail("numbers that are no mt19937");
  state_->engine = engine;
  state_->next_normal.reset();
  if (word[count] != 0) state_->next_normal = std::bit_cast<double>(word[count + 1]);
}

std::uint32_t Generator::next_u32() { return static_cast<std::uint32_t>(state_->engine()); }

std::uint64_t Generator::next_u64() {
  const std::uint64_t high = next_u32();
  return high << 32 | next_u32();
}

Tensor Generator::rand(const Shape& shape) { return uniform(shape, 0, 1); }

Tensor Generator::uniform(const Shape& shape, double low, double high) {
  if (!(low <= high) || !std::isfinite(static_cast<float>(high) - static_cast<float>(low))) {
    throw Error(Error::Kind::argument, "uniform", "low <= high, which float32 holds, as their difference",
                shortest_decimal(low) + " and " + shortest_decimal(high));
  }
  const auto from = static_cast<float>(low), range = static_cast<float>(high) - from;
  Tensor result = Tensor::empty(shape);
  auto* out = result.data<float>();
  // One rounding: PyTorch's AVX2, AVX-512 and Arm builds contract u · range + from.
  for (std::int64_t i = 0; i < result.numel(); ++i) out[i] = std::fma(unit_float(next_u32()), range, from);
  return result;
}

Tensor Generator::randn(const Shape& shape) {
  Tensor result = Tensor::empty(shape);
  const std::int64_t n = result.numel();
  auto* out = result.data<float>();
  if (n >= kBlock) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = unit_float(next_u32());
    for (std::int64_t i = 0; i + kBlock <= n; i += kBlock) normal_block(out + i);
    if (n % kBlock != 0) {  // the last sixteen are drawn anew, over what the blocks before them left
      float* tail = out + n - kBlock;
      for (std::int64_t i = 0; i < kBlock; ++i) tail[i] = unit_float(next_u32());
      normal_block(tail);
    }
    return result;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    if (auto& kept = state_->next_normal) {
      out[i] = static_cast<float>(*kept);
      kept.reset();
      continue;
    }
    const double u1 = unit_double(next_u64()), u2 = unit_double(next_u64());
    const double r = std::sqrt(-2 * std::log1p(-u2)), t = 2 * std::numbers::pi * u1;
    state_->next_normal = r * std::sin(t);
    out[i] = static_cast<float>(r * std::cos(t));
  }
  return result;
}

Tensor Generator::randint(std::int64_t low, std::int64_t high, const Shape& shape) {
  if (low >= high) {
    throw Error(Error::Kind::argument, "randint", "low < high", std::to_string(low) + " and " + std::to_string(high));
  }
  const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  Tensor result = Tensor::empty(shape, DType::i64);
  auto* out = result.data<std::int64_t>();
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    // From 2^28 on the remainder of 32 bits would be skewed by 6 % and more (ATen/native/cpu/DistributionTemplates.h).
    const std::uint64_t u = range < (std::uint64_t{1} << 28) ? next_u32() : next_u64();
    out[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + u % range);
  }
  return result;
}

Tensor Generator::dropout_keep(const Shape& shape, double p) {
  if (!(p >= 0 && p <= 1)) {
    throw Error(Error::Kind::argument, "dropout", "a probability in [0, 1]", shortest_decimal(p));
  }
  if (p == 0 || p == 1) return Tensor::full(shape, p == 0 ? 1 : 0, DType::boolean);
  if (state_->flavour == DropoutFlavour::philox) return philox_keep(shape, p, next_u64());
  Tensor result = Tensor::empty(shape, DType::boolean);
  if (result.numel() == 0) return result;
  auto* out = result.data<bool>();
  if (state_->flavour == DropoutFlavour::mkl) {
    Mcg31 stream(next_u32());
    for (std::int64_t i = 0; i < result.numel(); ++i) out[i] = stream.next() < 1 - p;
  } else {
    for (std::int64_t i = 0; i < result.numel(); ++i) out[i] = unit_double(next_u64()) < 1 - p;
  }
  return result;
}

}  // namespace attn
