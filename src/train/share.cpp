#include "train/share.hpp"

#include <numeric>

#include "attn/gradient_sum.hpp"

namespace attn {

TextShare::TextShare(const TrainRanks& ranks, std::int64_t context) : all_(ranks.transport) {
  if (ranks.sequence == 1) return;
  std::vector<int> members(static_cast<std::size_t>(ranks.sequence));
  std::iota(members.begin(), members.end(), ranks.data_rank() * ranks.sequence);
  sharing_ = distributed::subgroup(*all_, members);
  part_ = std::make_shared<distributed::SequenceRanks>(*sharing_, distributed::Layout::zigzag(context, ranks.sequence),
                                                       ranks.scheme);
}

TrainBatch TextShare::of(const TrainBatch& texts) const {
  if (!part_) return texts;
  return {part_->take(texts.ids), part_->take(texts.targets)};
}

std::vector<double> TextShare::gathered(std::vector<double> own) const {
  if (part_) {
    for (double& loss : own) loss *= part_->share();
    const std::vector<double> parts = distributed::all_gather(sharing_.get(), own);
    for (std::size_t i = 0; i < own.size(); ++i) {
      own[i] = 0;
      for (std::size_t at = i; at < parts.size(); at += own.size()) own[i] += parts[at];
    }
    if (sharing_->rank() != 0) own.clear();  // one of them tells all
  }
  return distributed::all_gather(all_, own);
}

}  // namespace attn
