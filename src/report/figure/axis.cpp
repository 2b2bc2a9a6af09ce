#include "report/figure/axis.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "report/figure/svg.hpp"

namespace attn::figure {
namespace {

// 1e-05 → 1e-5
std::string without_padding(std::string text) {
  const std::size_t e = text.find('e');
  if (e == std::string::npos) return text;
  std::size_t digit = e + 1;
  if (text[digit] == '+') {
    text.erase(digit, 1);
  } else if (text[digit] == '-') {
    ++digit;
  }
  while (text[digit] == '0' && digit + 1 < text.size()) text.erase(digit, 1);
  return text;
}

double nice_step(double rough) {
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * power * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::vector<Tick> linear_ticks(double low, double high, int count) {
  std::vector<Tick> ticks;
  const double rough = high / count - low / count;
  if (!(rough > 0)) return ticks;
  const double step = nice_step(rough);
  const double largest = std::max(std::abs(low), std::abs(high));
  const int decimals = static_cast<int>(std::clamp(-std::floor(std::log10(step) + 1e-9), 0.0, 300.0));
  const bool plain = decimals <= 4 && largest < 1e6;
  const double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  for (int i = 0; i <= static_cast<int>(std::min(last - first, 100.0)); ++i) {
    const double value = (first + i) * step;
    ticks.push_back({value, plain ? num(value, decimals) : short_number(value, 6)});
  }
  return ticks;
}

std::vector<Tick> log_ticks(double low, double high, int count) {
  std::vector<Tick> ticks;
  const int first = static_cast<int>(std::floor(std::log10(low) + 1e-9));
  const int last = static_cast<int>(std::floor(std::log10(high) + 1e-9));
  const int stride = std::max(1, (last - first + count) / count);
  const bool between = last - first < 2;
  for (int power = first; power <= last; power += stride) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10.0, power);
      if (value < low * (1 - 1e-9) || value > high * (1 + 1e-9) || (factor > 1 && !between)) continue;
      if (std::isinf(value)) continue;  // beyond float64's largest number, which `high` may be
      ticks.push_back({value, short_number(value)});
    }
  }
  return ticks;
}

}  // namespace

std::string short_number(double value, int digits) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const double size = std::abs(value);
  std::array<char, 64> buffer{};
  if (size != 0 && (size < 1e-4 || size >= 1e6)) {
    const auto end =
        std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific, digits - 1);
    std::string text(buffer.data(), end.ptr);
    const std::size_t e = text.find('e');
    std::string mantissa = text.substr(0, e);
    if (mantissa.find('.') != std::string::npos) {
      mantissa.erase(mantissa.find_last_not_of('0') + 1);
      if (mantissa.back() == '.') mantissa.pop_back();
    }
    return without_padding(mantissa + text.substr(e));
  }
  const int before = size < 1 ? 0 : static_cast<int>(std::log10(size)) + 1;
  const int leading = size == 0 || size >= 0.1 ? 0 : static_cast<int>(-std::log10(size));
  return num(value, std::max(0, digits - before) + leading);
}

Axis::Axis(double low, double high, bool log) : low_(low), high_(high), log_(log) {
  // Nearer to each other than a double can divide: as if equal.
  constexpr double narrow = 1e-12, smallest = 1e-300;
  const double size = std::max(std::abs(low_), std::abs(high_));
  if (high_ / 2 - low_ / 2 > std::max(size * narrow, log_ ? 0 : smallest)) return;
  const double apart = size < smallest ? 1 : size / 10;
  low_ = log_ ? std::max(low_ / 2, std::numeric_limits<double>::denorm_min()) : low_ - apart;
  high_ = log_ ? std::min(high_, std::numeric_limits<double>::max() / 2) * 2 : high_ + apart;
}

double Axis::at(double value) const noexcept {
  if (log_) return (std::log(value) - std::log(low_)) / (std::log(high_) - std::log(low_));
  return (value / 2 - low_ / 2) / (high_ / 2 - low_ / 2);  // halves: the difference may overflow
}

std::vector<Tick> Axis::ticks(int count) const {
  return log_ ? log_ticks(low_, high_, count) : linear_ticks(low_, high_, count);
}

}  // namespace attn::figure
