#include "bench/masks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/error.hpp"
#include "common/format.hpp"

namespace attn::tool {
namespace {

constexpr std::int64_t kMaskBlock = 128;

Tensor lengths_of(const AttentionSizes& s) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 1; i <= s.b; ++i) lengths.push_back(s.tk * i / s.b);
  return Tensor::from(std::span<const std::int64_t>(lengths), {s.b});
}

// 2^(-8/n), its square, … (Press et al. 2022).
Tensor slopes_of(const AttentionSizes& s) {
  Tensor slopes = Tensor::empty({s.hq});
  for (std::int64_t h = 0; h < s.hq; ++h) {
    slopes.set({h}, std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(s.hq)));
  }
  return slopes;
}

ScoreFunction relative_positions(const Tensor& slopes) {
  return ScoreFunction::elementwise(
      [slopes, slope = slopes.data<float>()](auto score, auto, auto h, auto i, auto j) {
        return score - slope[h] * static_cast<float>(std::abs(i - j));
      },
      [](auto, auto...) { return 1; });
}

// A part of a shape changes the options and inputs here, by its value.
struct With {
  AttentionOptions& o;
  double value;
  const AttentionSizes& s;
  BenchInputs& in;

  void add(const Mask& mask) const { o.mask = o.mask & mask; }
};

std::int64_t blocks_of(std::int64_t tokens) { return (tokens + kMaskBlock - 1) / kMaskBlock; }

struct Part {
  std::string_view name;
  bool takes_value;
  void (*apply)(const With&);
  bool is_share() const { return name == "blocks" || name.starts_with("dropout"); }
};

constexpr std::array kMaskParts{
    Part{"none", false, [](const With&) {}},
    Part{"causal", false, [](const With& w) { w.add(Mask::causal(Align::top_left)); }},
    Part{"causal-br", false, [](const With& w) { w.add(Mask::causal(Align::bottom_right)); }},
    Part{"window", true, [](const With& w) { w.add(Mask::window(static_cast<std::int64_t>(w.value), 0)); }},
    Part{"lengths", false, [](const With& w) { w.add(Mask::lengths(lengths_of(w.s))); }},
    Part{"keep", false,
         [](const With& w) {
           w.add(Mask::boolean(w.in.coins("keep", {1, 1, w.s.tq, w.s.tk}, 0.5)));
         }},
    Part{"bias", false,
         [](const With& w) {
           w.add(Mask::additive(w.in.normal("bias", {1, 1, w.s.tq, w.s.tk}, DType::f32)));
         }},
    Part{"blocks", true,
         [](const With& w) {
           const Tensor kept = w.in.coins("blocks", {1, 1, blocks_of(w.s.tq), blocks_of(w.s.tk)}, w.value);
           w.add(Mask::blocks(kept, kMaskBlock, kMaskBlock));
         }},
    Part{"alibi", false, [](const With& w) { w.o.alibi_slopes = slopes_of(w.s); }},
    Part{"relative", false,
         [](const With& w) {
           w.o.relative_bias.table = w.in.normal("relative", {32, w.s.hq}, DType::f32);
         }},
    Part{"score", false, [](const With& w) { w.o.score_function = relative_positions(slopes_of(w.s)); }},
    Part{"sinks", false, [](const With& w) { w.o.sinks = w.in.normal("sinks", {w.s.hq}, DType::f32); }},
    Part{"softcap", true, [](const With& w) { w.o.softcap = w.value; }},
    Part{"dropout", true, [](const With& w) { w.o.dropout = w.value, w.o.dropout_key = 1; }},
    Part{"dropout-keep", true,
         [](const With& w) {
           w.o.dropout = w.value, w.o.dropout_keep = w.in.coins("dropout", {1, 1, w.s.tq, w.s.tk}, 1 - w.value);
         }},
};

struct Found {
  const Part* part;
  double value;
};

std::optional<Found> find(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string_view key = std::string_view(text).substr(0, equals);
  const auto* part = std::find_if(kMaskParts.begin(), kMaskParts.end(), [&](const Part& p) { return p.name == key; });
  if (part == kMaskParts.end() || part->takes_value != (equals != std::string::npos)) return {};
  const double most = part->is_share() ? 1 : 1 << 24;
  const auto value = part->takes_value ? number_in<double>(text.substr(equals + 1)) : 0;
  if (!value || !(*value >= 0 && *value <= most)) return {};
  return Found{part, *value};
}

std::vector<Found> parse(const std::string& mask) {
  std::vector<Found> parts;
  for (const std::string& word : split(mask, '+')) {
    const auto found = find(word);
    const bool twice = found && std::ranges::find(parts, found->part, &Found::part) != parts.end();
    if (!found || twice || (found->part->name == "none" && mask != "none")) {
      throw Error(Error::Kind::data, "mask",
                  "none, or causal, causal-br, window=N, lengths, keep, bias, blocks=P, alibi, relative, score, sinks, "
                  "softcap=C, dropout=P, dropout-keep=P, each once, joined by +",
                  mask);
    }
    parts.push_back(*found);
  }
  return parts;
}

}  // namespace

AttentionOptions mask_options(const std::string& mask, const AttentionSizes& sizes, BenchInputs& inputs) {
  AttentionOptions options;
  for (const Found& found : parse(mask)) found.part->apply({options, found.value, sizes, inputs});
  return options;
}

namespace {

// Keys [first, last) that query i sees, by its diagonal, window and length.
std::pair<std::int64_t, std::int64_t> seen_keys(const Mask& mask, const AttentionSizes& s, std::int64_t length,
                                                std::int64_t i) {
  const std::int64_t centre = i + (mask.align == Align::bottom_right ? s.tk - s.tq : 0);
  const std::int64_t first = mask.window_left >= 0 ? centre - mask.window_left : 0;
  std::int64_t last = mask.is_causal ? centre + 1 : length;
  if (mask.window_right >= 0) last = std::min(last, centre + mask.window_right + 1);
  const std::int64_t begin = std::clamp<std::int64_t>(first, 0, length);
  return {begin, std::max(begin, std::clamp<std::int64_t>(last, 0, length))};
}

// How many of them the blocks leave; all rows have blocks of their own, all heads the same.
std::int64_t in_blocks(const Mask& mask, std::int64_t i, std::int64_t first, std::int64_t last) {
  if (!mask.block_keep.defined()) return last - first;
  const Tensor row = mask.block_keep.select(0, 0).select(0, 0).select(0, i / mask.block_query);
  std::int64_t seen = 0;
  for (std::int64_t block = 0; block < row.numel(); ++block) {
    const std::int64_t begin = std::max(first, block * mask.block_key);
    const std::int64_t end = std::min(last, (block + 1) * mask.block_key);
    if (row.data<bool>()[block] && begin < end) seen += end - begin;
  }
  return seen;
}

}  // namespace

double seen_share(const AttentionOptions& options, const AttentionSizes& s) {
  const Mask& mask = options.mask;
  const bool bounded = mask.has_window() || mask.key_lengths.defined() || mask.block_keep.defined();
  if (!bounded && !mask.is_causal) return 1;
  if (!bounded && s.tq == s.tk) return 0.5;
  double seen = 0;
  for (std::int64_t b = 0; b < s.b; ++b) {
    const auto length = mask.key_lengths.defined() ? mask.key_lengths.data<std::int64_t>()[b] : s.tk;
    for (std::int64_t i = 0; i < s.tq; ++i) {
      const auto [first, last] = seen_keys(mask, s, length, i);
      seen += static_cast<double>(in_blocks(mask, i, first, last));
    }
  }
  return seen / (static_cast<double>(s.b) * static_cast<double>(s.tq) * static_cast<double>(s.tk));
}

}  // namespace attn::tool
