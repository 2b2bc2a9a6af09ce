// Some ranks of a transport as one of their own.
#include "distributed/cases.hpp"

namespace attn::test {
namespace {

using dist::Transport;

TEST(Subgroup, IsATransport) {
  dist::run_threads(5, [](Transport& all) {
    const bool odd = all.rank() % 2 == 1;
    const auto group = dist::subgroup(all, odd ? std::vector{3, 1} : std::vector{0, 2, 4});
    EXPECT_EQ(group->size(), odd ? 2 : 3);
    EXPECT_EQ(group->rank(), odd ? 1 - all.rank() / 2 : all.rank() / 2);
    check_transport(*group);
    EXPECT_EQ(group->all_gather(std::to_string(all.rank())),
              (odd ? std::vector<std::string>{"3", "1"} : std::vector<std::string>{"0", "2", "4"}));
  });
  for (const auto& members : std::vector<std::vector<int>>{{}, {1, 2}, {0, 0}, {0, 3}, {-1, 0}}) {
    expect_error(Error::Kind::argument, {"subgroup", "rank 0 among them"}, [&] {
      dist::run_threads(3, [&](Transport& all) {
        if (all.rank() == 0) dist::subgroup(all, members);
      });
    });
  }
}

}  // namespace
}  // namespace attn::test
