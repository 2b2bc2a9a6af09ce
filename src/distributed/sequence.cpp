// A model's attention, over ranks.
#include "attn/error.hpp"
#include "attn/sequence_ranks.hpp"

namespace attn::distributed {
namespace {

std::vector<std::int64_t> positions_of(const Layout& layout, const Transport& ranks) {
  if (layout.ranks() != ranks.size()) {
    throw Error(Error::Kind::argument, "SequenceRanks", "a layout for " + std::to_string(ranks.size()) + " ranks",
                "one for " + std::to_string(layout.ranks()));
  }
  for (int r = 0; r < ranks.size(); ++r) {  // found on all ranks
    if (layout.rows(r) > 0) continue;
    throw Error(Error::Kind::argument, "SequenceRanks", "tokens for each rank",
                "none of " + std::to_string(layout.tokens()) + " for rank " + std::to_string(r));
  }
  std::vector<std::int64_t> positions;
  for (const Run& run : layout.runs(ranks.rank())) {
    for (std::int64_t i = run.first; i < run.last; ++i) positions.push_back(i);
  }
  return positions;
}

}  // namespace

SequenceRanks::SequenceRanks(Transport& ranks, Layout layout, Scheme scheme)
    : SequencePart(layout.tokens(), positions_of(layout, ranks)),
      ranks_(ranks),
      layout_(std::move(layout)),
      scheme_(scheme) {}

Tensor SequenceRanks::take(const Tensor& whole) const { return layout_.take(whole, -1, ranks_.rank()); }

double SequenceRanks::share() const noexcept { return static_cast<double>(rows()) / static_cast<double>(tokens()); }

Options SequenceRanks::options_of(const AttentionOptions& options) const {
  if (options.mask.bias.defined()) {  // ranks may share its rows, or not: what is to be added up is not clear
    throw Error(Error::Kind::argument, "SequenceRanks", "no additive mask", options.mask.bias.shape().str());
  }
  Options all;
  all.attention = options, all.scheme = scheme_;
  all.queries = all.keys = layout_;
  return all;
}

AttentionResult SequenceRanks::attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                         const AttentionOptions& options) {
  return distributed::attention(ranks_, q, k, v, options_of(options));
}

AttentionGradient SequenceRanks::attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k,
                                                    const Tensor& v, const AttentionOptions& options,
                                                    const AttentionResult& forward) {
  AttentionGradient grad = distributed::attention_backward(ranks_, d_output, q, k, v, options_of(options), forward);
  if (ranks_.rank() == 0) return grad;
  if (grad.sinks.defined()) grad.sinks.fill(0);
  if (grad.relative_bias.defined()) grad.relative_bias.fill(0);
  return grad;
}

}  // namespace attn::distributed
