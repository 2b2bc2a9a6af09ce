#include "random/philox.hpp"

#include <algorithm>
#include <string>

#include "attn/error.hpp"
#include "attn/random.hpp"
#include "core/decimal.hpp"
#include "core/parallel.hpp"

namespace attn {

std::uint64_t philox_threshold(double p) { return static_cast<std::uint64_t>(p * 0x1p32); }

Tensor philox_keep(const Shape& shape, double p, std::uint64_t key) { return philox_keep(shape, p, key, {}); }

Tensor philox_keep(const Shape& shape, double p, std::uint64_t key, const PhiloxStart& start) {
  if (shape.size() != 4) throw Error(Error::Kind::shape, "philox_keep", "(b, h, tq, tk)", shape.str());
  if (!(p >= 0 && p <= 1)) {
    throw Error(Error::Kind::argument, "philox_keep", "a probability in [0, 1]", shortest_decimal(p));
  }
  for (const std::int64_t first : {start.batch, start.query, start.key, start.head}) {
    if (first >= 0 && first <= std::int64_t{1} << 31) continue;
    throw Error(Error::Kind::argument, "philox_keep", "a start from 0 to 2^31", std::to_string(first));
  }
  const std::uint64_t threshold = philox_threshold(p);
  Tensor keep = Tensor::empty(shape, DType::boolean);
  auto* out = keep.data<bool>();
  const std::int64_t tk = shape[3], rows = tk == 0 ? 0 : keep.numel() / tk;
  constexpr std::int64_t kRows = 16;  // of a task
  parallel_for((rows + kRows - 1) / kRows, 0, 20 * static_cast<double>(keep.numel()), [&](std::int64_t task, void*) {
    for (std::int64_t row = task * kRows; row < std::min(rows, (task + 1) * kRows); ++row) {
      const auto word = [](std::int64_t n) { return static_cast<std::uint32_t>(n); };
      const std::uint32_t i = word(start.query + row % shape[2]), h = word(start.head + row / shape[2] % shape[1]),
                          b = word(start.batch + row / shape[2] / shape[1]);
      std::array<std::uint32_t, 4> words{};
      for (std::int64_t j = 0; j < tk; ++j) {
        const std::int64_t number = start.key + j;
        if (j == 0 || number % 4 == 0) words = philox({word(number / 4), i, h, b}, key);
        out[row * tk + j] = words[static_cast<std::size_t>(number % 4)] >= threshold;
      }
    }
  });
  return keep;
}

}  // namespace attn
