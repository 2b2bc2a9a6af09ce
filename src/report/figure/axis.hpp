// Round numbers along an axis.
#pragma once

#include <string>
#include <vector>

namespace attn::figure {

struct Tick {
  double value;
  std::string text;
};

// A number as people write it: few digits, scientific (1e-5) past four decimals or six digits.
std::string short_number(double value, int digits = 3);

// A value's place on an axis, and its ticks: 0 at `low`, 1 at `high`.
class Axis {
 public:
  // `log`: both must be positive. Equal bounds are moved apart.
  Axis(double low, double high, bool log);

  double low() const noexcept { return low_; }
  double high() const noexcept { return high_; }
  double at(double value) const noexcept;
  // Multiples of 1, 2 or 5 times a power of ten inside the bounds: about `count`, two at least where they exist.
  std::vector<Tick> ticks(int count) const;

 private:
  double low_, high_;
  bool log_;
};

}  // namespace attn::figure
