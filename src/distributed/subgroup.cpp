// Some ranks of a transport, by other numbers.
#include <algorithm>
#include <string>
#include <utility>

#include "attn/distributed.hpp"
#include "attn/error.hpp"

namespace attn::distributed {
namespace {

std::string listed(const std::vector<int>& members) {
  std::string text;
  for (const int member : members) text += (text.empty() ? "" : ", ") + std::to_string(member);
  return text;
}

class Subgroup : public Transport {
 public:
  Subgroup(Transport& all, std::vector<int> members) : all_(all), members_(std::move(members)) {
    std::vector<int> sorted = members_;
    std::ranges::sort(sorted);
    const bool distinct = std::ranges::adjacent_find(sorted) == sorted.end();
    const auto own = std::ranges::find(members_, all.rank());
    if (own == members_.end() || !distinct || sorted.front() < 0 || sorted.back() >= all.size()) {
      throw Error(Error::Kind::argument, "subgroup",
                  "different ranks from 0 to " + std::to_string(all.size() - 1) + ", rank " +
                      std::to_string(all.rank()) + " among them",
                  members_.empty() ? "none" : listed(members_));
    }
    rank_ = static_cast<int>(own - members_.begin());
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(members_.size()); }
  Request send(int to, Bytes message, int tag) override { return all_.send(member(to), message, tag); }
  Request receive(int from, Room message, int tag) override { return all_.receive(member(from), message, tag); }
  void progress() override { all_.progress(); }

 private:
  int member(int rank) const {
    if (rank >= 0 && rank < size()) return members_[static_cast<std::size_t>(rank)];
    throw Error(Error::Kind::argument, "transport", "a rank from 0 to " + std::to_string(size() - 1),
                std::to_string(rank));
  }

  Transport& all_;
  std::vector<int> members_;
  int rank_ = 0;
};

}  // namespace

std::unique_ptr<Transport> subgroup(Transport& all, std::vector<int> members) {
  return std::make_unique<Subgroup>(all, std::move(members));
}

}  // namespace attn::distributed
