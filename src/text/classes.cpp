#include "text/classes.hpp"

#include <algorithm>
#include <array>

namespace attn::text {

Properties properties_of(std::uint32_t code) {
  if (code >= kCodes) return 0;
  const auto find = [](std::uint32_t c) {
    const auto runs = property_runs();
    return property_sets()[*(std::upper_bound(runs.begin(), runs.end(), c * 256 + 255) - 1) % 256];
  };
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
