#include "text/classes.hpp"

#include <algorithm>
#include <array>

namespace attn::text {

std::vector<std::uint32_t> starts_of_runs(std::span<const std::uint32_t> lengths) {
  std::vector<std::uint32_t> starts;
  std::uint32_t code = 0;
  for (const std::uint32_t run : lengths) {
    starts.push_back(code * 256 + run % 256);
    code += run / 256;
  }
  return starts;
}

std::uint32_t value_in_runs(std::span<const std::uint32_t> starts, std::uint32_t code) {
  return *(std::ranges::upper_bound(starts, code * 256 + 255) - 1) % 256;
}

std::span<const std::uint32_t> property_runs() {
  static const auto starts = starts_of_runs(property_run_lengths());
  return starts;
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
