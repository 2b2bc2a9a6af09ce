// Random numbers: PyTorch's CPU streams, number for number, and Philox, by which the operator drops weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "attn/tensor.hpp"

namespace attn {

// Which dropout PyTorch would have drawn. The same seed gives other masks on other systems
// (pytorch/pytorch#121595): `mkl` is PyTorch's Linux x86 wheels on Intel processors, `native` is
// macOS, Arm, AMD and builds without MKL (the printed book).
// `philox` is this library's own: the fused kernels draw it where they need it, the same on every machine
// and for any number of threads, with no mask in memory.
enum class DropoutFlavour { native, mkl, philox };

std::string_view name(DropoutFlavour flavour) noexcept;
DropoutFlavour dropout_flavour(std::string_view name);  // throws Error (argument)

// A handle to one mt19937 stream, seeded as torch.manual_seed(seed) does (init_genrand with the
// seed's low 32 bits). Copies share the stream, as torch.Generator's do.
class Generator {
 public:
  explicit Generator(std::uint64_t seed, DropoutFlavour flavour = DropoutFlavour::mkl);
  // Moving copies, too, so that no generator is left without a stream.
  Generator(const Generator&) = default;
  Generator& operator=(const Generator&) = default;

  void manual_seed(std::uint64_t seed);
  DropoutFlavour flavour() const noexcept;

  // Where the stream is, as int64 (n), which a checkpoint can keep. set_state() throws Error (data) for anything else.
  Tensor state() const;
  void set_state(const Tensor& state);

  std::uint32_t next_u32();
  std::uint64_t next_u64();  // (first u32 << 32) | second u32

  // Bounds in the wrong order, or that are not finite, throw Error (argument).
  Tensor rand(const Shape& shape);                                          // float32 in [0, 1)
  Tensor randn(const Shape& shape);                                         // float32, mean 0, variance 1
  Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape);  // int64 in [low, high)
  Tensor uniform(const Shape& shape, double low, double high);              // float32 in [low, high)

  // True where an element is kept by dropout of probability p in [0, 1]. p = 0 and p = 1 draw nothing. Flavour
  // philox takes next_u64() as the key of philox_keep(), and a shape (b, h, tq, tk). Throws Error (argument) for
  // another p.
  Tensor dropout_keep(const Shape& shape, double p);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// (b, h, tq, tk) boolean: element (b, h, i, j) is kept when word j % 4 of Philox4x32-10 (Salmon et al. 2011) with
// this key, at counter (j / 4, i, h, b), is at least p · 2^32. Throws Error for a shape without four sizes (shape) and
// a p outside [0, 1] (argument).
Tensor philox_keep(const Shape& shape, double p, std::uint64_t key);
// The same for a part of the mask that begins at an item, a query, a key and a head.
struct PhiloxStart {
  std::int64_t batch = 0, query = 0, key = 0, head = 0;
};
Tensor philox_keep(const Shape& shape, double p, std::uint64_t key, const PhiloxStart& start);

}  // namespace attn
