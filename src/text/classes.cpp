#include "text/classes.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/lasting.hpp"

namespace attn::text {

std::vector<std::uint32_t> numbers_of(std::string_view letters) {
  std::vector<std::uint32_t> numbers;
  std::uint32_t number = 0;
  for (const char c : letters) {
    const bool last = c >= 'a';
    number = number * 26 + static_cast<std::uint32_t>(c - (last ? 'a' : 'A'));
    if (last) numbers.push_back(std::exchange(number, 0));
  }
  return numbers;
}

std::vector<std::uint32_t> starts_of_runs(std::string_view letters) {
  const std::vector<std::uint32_t> numbers = numbers_of(letters);
  std::vector<std::uint32_t> starts;
  std::uint32_t code = 0;
  for (std::size_t i = 0; i < numbers.size(); i += 2) {
    starts.push_back(code * 256 + numbers[i + 1]);
    code += numbers[i];
  }
  return starts;
}

std::uint32_t value_in_runs(std::span<const std::uint32_t> starts, std::uint32_t code) {
  return *(std::ranges::upper_bound(starts, code * 256 + 255) - 1) % 256;
}

std::span<const std::uint32_t> property_runs() {
  static const auto& starts = lasting([] { return starts_of_runs(property_run_letters()); });
  return starts;
}

std::span<const Lowered> lowered_runs() {
  static const auto& runs = lasting([] {
    const std::vector<std::uint32_t> numbers = numbers_of(lowered_letters());
    std::vector<Lowered> all;
    std::uint32_t at = 0;
    for (std::size_t i = 0; i < numbers.size(); i += 4) {
      const std::uint32_t first = at + numbers[i];
      const auto added = static_cast<std::int32_t>(numbers[i + 3] / 2);
      at = first + numbers[i + 1];
      all.push_back({first, at, numbers[i + 2], numbers[i + 3] % 2 == 1 ? -added : added});
    }
    return all;
  });
  return runs;
}

Properties properties_of(std::uint32_t code) {
  if (code >= kCodes) return 0;
  const auto find = [](std::uint32_t c) { return property_sets()[value_in_runs(property_runs(), c)]; };
  static const auto ascii = [&] {
    std::array<Properties, 128> table{};
    for (std::uint32_t c = 0; c < table.size(); ++c) table[c] = find(c);
    return table;
  }();
  return code < ascii.size() ? ascii[code] : find(code);
}

std::optional<Properties> properties_named(std::string_view name) {
  constexpr std::string_view categories = "LuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCoCn";
  if (name == "Han") return bit(Property::han);
  if (name.empty() || name.size() > 2) return {};
  Properties found = 0;
  for (std::size_t i = 0; i < categories.size(); i += 2) {
    if (categories.substr(i, 2).starts_with(name)) found |= Properties{1} << (i / 2);
  }
  return found ? std::optional(found) : std::nullopt;
}

}  // namespace attn::text
