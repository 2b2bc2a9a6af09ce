// Calls at the end of a process, from the destructors of statics: the library's own are gone by then, and so is what
// the main thread had kept.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>

#include "attn/attention.hpp"
#include "attn/words.hpp"
#include "core/parallel.hpp"
#include "core/testing.hpp"
#include "core/threads.hpp"

namespace attn::test {
namespace {

// The destructor of this one runs after those of what the library makes at its first use.
struct LastWork {
  std::function<bool()> work;
  ~LastWork() {
    if (work && !work()) _exit(1);
  }
};
LastWork last;

// Runs work() twice in a child: before its end, and at it. The child ends with 0 where both say true.
void expect_holds_at_exit(const std::function<bool()>& work) {
  EXPECT_EXIT(
      {
        alarm(60);
        last.work = work;
        std::exit(work() ? 0 : 2);
      },
      testing::ExitedWithCode(0), "");
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), sizeof(float) * static_cast<std::size_t>(a.numel())) == 0;
}

TEST(Exit, CallsHaveTheirBits) {
  const Tensor x = Generator(1).randn({1, 4, 300, 64});
  const Tensor expected = attention(x, x, x).output;
  for (const int count : {1, 3}) {
    const Threads threads(count);
    expect_holds_at_exit([&] { return same_bits(attention(x, x, x).output, expected); });
    expect_holds_at_exit([&] {
      const StepTeam team;
      return same_bits(attention(x, x, x).output, expected);
    });
  }
}

TEST(Exit, WordsHaveTheirVectors) {
  const Tensor expected = embed_words("My dog likes cats.");
  expect_holds_at_exit([&] { return same_bits(embed_words("My dog likes cats."), expected); });
}

}  // namespace
}  // namespace attn::test
