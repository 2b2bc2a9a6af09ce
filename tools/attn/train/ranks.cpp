#include "train/ranks.hpp"

#include <numeric>

#include "attn/error.hpp"
#include "attn/gradient_sum.hpp"
#include "common/format.hpp"
#include "common/options.hpp"
#include "core/escape.hpp"

namespace attn::tool {
namespace {

struct Division {
  std::int64_t data = 1, sequence = 1;
};

// "data=4,sequence=2", each at most once.
Division parse_division(const std::string& text) {
  constexpr std::int64_t most = 1 << 20;
  Division shares;
  bool has_data = false, has_sequence = false, fits = true;
  for (std::size_t at = 0; at <= text.size() && fits;) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, end - at), name = one.substr(0, one.find('='));
    bool& has = name == "data" ? has_data : has_sequence;
    std::int64_t& share = name == "data" ? shares.data : shares.sequence;
    fits = (name == "data" || name == "sequence") && !std::exchange(has, true) && name.size() < one.size() &&
           !read_value(one.substr(name.size() + 1), share) && share >= 1 && share <= most;
    at = end + 1;
  }
  if (fits) return shares;
  throw Error(Error::Kind::argument, "--ranks", "data=N, sequence=N or both, as in data=4,sequence=2", escaped(text));
}

}  // namespace

std::string TrainRanks::in_words() const {
  const std::string shares = sequence == 1 ? "" : formatted(", data={},sequence={}", data(), sequence);
  return formatted("{} ranks{}", size(), shares);
}

TrainRanks train_ranks(distributed::Transport* transport, const std::string& text, const std::string& scheme,
                       Sharding sharding) {
  TrainRanks ranks{transport, sharding, 1, distributed::parse_scheme(scheme)};
  const Division shares = text.empty() ? Division{ranks.size(), 1} : parse_division(text);
  if (shares.data * shares.sequence != ranks.size()) {
    throw Error(Error::Kind::argument, "--ranks",
                formatted("shares of {} rank{}", ranks.size(), ranks.size() == 1 ? "" : "s"),
                formatted("{} of {}", shares.data * shares.sequence, escaped(text)),
                formatted("start it by mpirun -n {}", shares.data * shares.sequence));
  }
  if (shares.sequence == 1 && scheme != "auto") {
    throw Error(Error::Kind::argument, "--scheme", "--ranks with sequence=2 or more, which share a text",
                escaped(scheme) + " without");
  }
  ranks.sequence = static_cast<int>(shares.sequence);
  return ranks;
}

TextShare::TextShare(const TrainRanks& ranks, std::int64_t context) : all_(ranks.transport) {
  if (ranks.sequence == 1) return;
  std::vector<int> members(static_cast<std::size_t>(ranks.sequence));
  std::iota(members.begin(), members.end(), ranks.data_rank() * ranks.sequence);
  sharing_ = distributed::subgroup(*all_, members);
  part_ = std::make_shared<distributed::SequenceRanks>(*sharing_, distributed::Layout::zigzag(context, ranks.sequence),
                                                       ranks.scheme);
}

Batch TextShare::of(const Batch& texts) const {
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

}  // namespace attn::tool
