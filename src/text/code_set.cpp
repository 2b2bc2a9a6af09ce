#include "text/code_set.hpp"

#include <algorithm>
#include <map>

namespace attn::text {

Ranges united(const Ranges& a, const Ranges& b) {
  Ranges all(a.size() + b.size()), result;
  std::ranges::merge(a, b, all.begin());
  for (const auto& [first, end] : all) {
    if (!result.empty() && first <= result.back().second) {
      result.back().second = std::max(result.back().second, end);
    } else {
      result.emplace_back(first, end);
    }
  }
  return result;
}

Ranges complement(const Ranges& ranges) {
  Ranges result;
  std::uint32_t at = 0;
  for (const auto& [first, end] : ranges) {
    if (at < first) result.emplace_back(at, first);
    at = end;
  }
  if (at < kCodesAndBytes) result.emplace_back(at, kCodesAndBytes);
  return result;
}

Ranges common(const Ranges& a, const Ranges& b) { return complement(united(complement(a), complement(b))); }

Ranges ranges_of(Properties any) {
  Ranges result;
  const auto runs = property_runs();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if ((property_sets()[runs[i] % 256] & any) == 0) continue;
    const std::uint32_t first = runs[i] / 256, end = i + 1 < runs.size() ? runs[i + 1] / 256 : kCodes;
    if (!result.empty() && result.back().second == first) {
      result.back().second = end;
    } else {
      result.emplace_back(first, end);
    }
  }
  return result;
}

CodeSet::CodeSet(const Ranges& ranges) {
  std::map<Block, std::uint16_t> known;
  auto range = ranges.begin();
  for (std::uint32_t block = 0; block < index_.size(); ++block) {
    Block bits{};
    for (std::uint32_t code = block * 256; code < (block + 1) * 256;) {
      while (range != ranges.end() && range->second <= code) ++range;
      const std::uint32_t block_end = (block + 1) * 256;
      if (range == ranges.end() || range->first >= block_end) break;
      code = std::max(code, range->first);
      for (const std::uint32_t end = std::min(range->second, block_end); code < end; ++code) {
        bits[code / 64 % 4] |= std::uint64_t{1} << (code % 64);
      }
    }
    const auto [at, fresh] = known.emplace(bits, static_cast<std::uint16_t>(blocks_.size()));
    if (fresh) blocks_.push_back(bits);
    index_[block] = at->second;
  }
}

}  // namespace attn::text
