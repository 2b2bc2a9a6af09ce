// MCG31m1: the multiplicative congruential generator behind PyTorch's dropout where it is built with MKL.
// x_{n+1} = a · x_n mod (2^31 - 1); L'Ecuyer 1999, "Tables of linear congruential generators".
#pragma once

#include <cstdint>

namespace attn {

class Mcg31 {
 public:
  static constexpr std::uint64_t modulus = 0x7fffffff;
  static constexpr std::uint64_t multiplier = 1132489760;

  explicit Mcg31(std::uint32_t seed) : x_(seed % modulus == 0 ? 1 : seed % modulus) {}

  // In [0, 1).
  double next() {
    const double value = static_cast<double>(x_) / static_cast<double>(modulus);
    x_ = x_ * multiplier % modulus;
    return value;
  }

  // As after n calls of next().
  void skip(std::uint64_t n) {
    for (std::uint64_t power = multiplier; n != 0; n >>= 1, power = power * power % modulus) {
      if (n & 1) x_ = x_ * power % modulus;
    }
  }

 private:
  std::uint64_t x_;
};

}  // namespace attn
