// The schemes by name, and what they cannot do.
#include <utility>

#include "attn/error.hpp"
#include "distributed/call.hpp"

namespace attn::distributed {
namespace {

constexpr std::pair<Scheme, std::string_view> kNames[] = {
    {Scheme::automatic, "auto"}, {Scheme::ring, "ring"}, {Scheme::gather, "gather"}, {Scheme::ulysses, "ulysses"}};

bool same_numbers(const Tensor& a, const Tensor& b) {
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    if (a.at({i}) != b.at({i})) return false;
  }
  return true;
}

bool compares_positions(const AttentionOptions& o) {
  return o.mask.is_causal || o.mask.has_window() || o.alibi_slopes.defined() || o.relative_bias.table.defined();
}

}  // namespace

std::string_view name(Scheme scheme) noexcept {
  for (const auto& [one, text] : kNames) {
    if (one == scheme) return text;
  }
  return "unknown";
}

Scheme parse_scheme(std::string_view text) {
  for (const auto& [scheme, known] : kNames) {
    if (known == text) return scheme;
  }
  throw Error(Error::Kind::argument, "scheme", "auto, ring, gather or ulysses", text);
}

// Ulysses has whole sequences. The others tell the operator where a block stands by its offsets, by which dropout and
// score functions know tokens, too.
std::string refusal(Scheme scheme, const Problem& problem, const AttentionOptions& o) {
  if (scheme == Scheme::ulysses) return {};
  if (o.mask.block_keep.defined()) return "block_keep, whose blocks a cut would divide";
  const bool packed = o.mask.query_starts.defined();
  if (packed && compares_positions(o) && !same_numbers(o.mask.query_starts, o.mask.key_starts))
    return "packed sequences of more or fewer keys than queries, with a mask or bias by position";
  const bool moved = o.mask.align == Align::bottom_right && !packed &&
                     (o.mask.key_lengths.defined() || problem.queries.tokens() != problem.keys.tokens());
  if (moved && ((o.dropout > 0 && o.dropout_key) || o.score_function))
    return "bottom_right with more or fewer keys than queries, together with a dropout_key or a score function";
  return {};
}

}  // namespace attn::distributed
