#include "train/ranks.hpp"

#include "attn/error.hpp"
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

}  // namespace attn::tool
