// The tests of tests/distributed where ranks are processes: mpirun -n 4 test_mpi. Every rank draws the same problems.
#include "attn/mpi.hpp"

#include "core/threads.hpp"
#include "distributed/cases.hpp"

namespace attn::test {
namespace {

using dist::Scheme;
using dist::Transport;

Transport* ranks = nullptr;

class Mpi : public testing::TestWithParam<Scheme> {};

TEST(MpiTransport, DeliversWhatIsSent) { check_transport(*ranks); }

// Past what one message of MPI's is cut into, it would take gigabytes: a long one, which goes by rendezvous.
TEST(MpiTransport, LongMessagesArriveWhole) {
  const int own = ranks->rank(), size = ranks->size();
  std::vector<std::int64_t> sent(1 << 18, own), received(1 << 18);
  dist::Request arriving = ranks->receive((own + size - 1) % size, std::as_writable_bytes(std::span(received)), 3);
  dist::Request leaving = ranks->send((own + 1) % size, std::as_bytes(std::span(sent)), 3);
  ranks->progress();
  arriving.wait(), leaving.wait();
  EXPECT_EQ(received, std::vector<std::int64_t>(1 << 18, (own + size - 1) % size));
}

TEST_P(Mpi, IsTheWhole) {
  const Threads one(1);
  for_seeds(12, [](std::mt19937& rng) { check_case(*ranks, random_case(rng, ranks->size()), GetParam()); });
}

INSTANTIATE_TEST_SUITE_P(Schemes, Mpi,
                         testing::Values(Scheme::ring, Scheme::gather, Scheme::ulysses, Scheme::automatic),
                         [](const auto& instance) { return std::string(dist::name(instance.param)); });

TEST(MpiDecode, IsTheWhole) {
  const Threads one(1);
  for_seeds(12, [](std::mt19937& rng) { check_decode(*ranks, rng); });
}

}  // namespace
}  // namespace attn::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  attn::mpi::Session session(&argc, &argv);
  attn::test::ranks = &session.transport();
  if (session.transport().rank() != 0) {  // they tell of failures alone
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
  }
  const int failed = RUN_ALL_TESTS();
  // Ranks that wait for one that has failed would wait for ever.
  if (failed) attn::mpi::Session::abort(1);
  return failed;
}
