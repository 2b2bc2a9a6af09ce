#include "train/ranks.hpp"

#include "common/format.hpp"
#include "common/options.hpp"

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
  for (const std::string& one : split(text, ',')) {
    const std::string name = one.substr(0, one.find('='));
    bool& has = name == "data" ? has_data : has_sequence;
    std::int64_t& share = name == "data" ? shares.data : shares.sequence;
    fits = fits && (name == "data" || name == "sequence") && !std::exchange(has, true) && name.size() < one.size() &&
           !read_value(one.substr(name.size() + 1), share) && share >= 1 && share <= most;
  }
  if (fits) return shares;
  refuse("--ranks", "data=N, sequence=N or both, as in data=4,sequence=2", text);
}

}  // namespace

std::string in_words(const TrainRanks& ranks) {
  const std::string shares =
      ranks.sequence == 1 ? "" : formatted(", data={},sequence={}", ranks.data(), ranks.sequence);
  return formatted("{} ranks{}", ranks.size(), shares);
}

TrainRanks train_ranks(distributed::Transport* transport, const std::string& text, const std::string& scheme,
                       Sharding sharding) {
  TrainRanks ranks{transport, sharding, 1, distributed::parse_scheme(scheme)};
  const Division shares = text.empty() ? Division{ranks.size(), 1} : parse_division(text);
  if (shares.data * shares.sequence != ranks.size()) {
    refuse("--ranks", "shares of " + counted(ranks.size(), "rank"),
           formatted("{} of {}", shares.data * shares.sequence, text),
           formatted("start it by mpirun -n {}", shares.data * shares.sequence));
  }
  if (!transport && sharding != Sharding::none) {
    refuse("--shard", "several ranks, as mpirun starts them", "one process");
  }
  if (shares.sequence == 1 && scheme != "auto") {
    refuse("--scheme", "--ranks with sequence=2 or more, which share a text", scheme + " without");
  }
  ranks.sequence = static_cast<int>(shares.sequence);
  return ranks;
}

}  // namespace attn::tool
