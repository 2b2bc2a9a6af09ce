// A random rank of a training, killed at random moments after the ranks have met: the job ends, names the rank, and its
// last checkpoint is whole. ATTN_KILL_MOMENTS is how many moments (4), ATTN_KILL_SEED repeats a run as far as a
// machine's timing can be repeated.
#include <csignal>
#include <random>

#include "attn/pretrained.hpp"
#include "ranks/ranks.hpp"

namespace attn::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char *kLog = "../log", *kOut = "../out";

// Ranks of one job, by the number that the launcher gave each.
using Ids = std::map<int, pid_t>;

int number_after(const std::string& text, const std::string& name) {
  const std::size_t at = text.find(name);
  return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + name.size());
}

class KillRank : public OverRanks {
 protected:
  // The launcher's children that have a rank.
  static Ids ranks_of(pid_t launcher) {
    Ids all;
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
      const pid_t id = std::atoi(entry.path().filename().c_str());
      if (id <= 0 || number_after(read(entry.path() / "status"), "PPid:") != launcher) continue;
      const std::string environment = read(entry.path() / "environ");
      const int rank = number_after(environment, "OMPI_COMM_WORLD_RANK=");
      if (rank >= 0) all[rank] = id;
    }
    return all;
  }

  void SetUp() override {
    OverRanks::SetUp();
    if (run("mpirun --version | grep -q 'Open MPI'").status != 0) GTEST_SKIP() << "ranks are found by Open MPI's names";
    const char *seed = std::getenv("ATTN_KILL_SEED"), *moments = std::getenv("ATTN_KILL_MOMENTS");
    const auto number = seed ? static_cast<unsigned>(std::stoul(seed)) : std::random_device()();
    std::printf("ATTN_KILL_SEED=%u\n", number);
    std::fflush(stdout);
    rng_.seed(number);
    moments_ = moments ? std::stoi(moments) : 4;
  }

  pid_t start(int ranks, const std::string& line) const {
    std::filesystem::remove(path(kOut));
    const pid_t id = fork();
    if (id != 0) return id;
    const bool ready = chdir(folder().c_str()) == 0 && freopen(kOut, "w", stdout) && freopen(kLog, "w", stderr);
    const std::string bin = std::filesystem::path(ATTN_COMMAND).parent_path().string() + ":" + std::getenv("PATH");
    setenv("PATH", bin.c_str(), 1);
    const std::string script = ATTN_SOURCE "/tests/mpi/run.sh", number = std::to_string(ranks), words = "exec " + line;
    if (ready) execl("/bin/sh", "sh", script.c_str(), number.c_str(), "sh", "-c", words.c_str(), nullptr);
    _exit(127);
  }
  // Until rank 0 prints. Open MPI 4.1 may not name a rank that dies before all are in MPI_Init, or may hang.
  bool ranks_met() const {
    const auto limit = Clock::now() + std::chrono::seconds(60);
    while (read(path(kOut)).empty() && Clock::now() < limit) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return !read(path(kOut)).empty();
  }
  static int wait(pid_t id) {
    int status = 0;
    waitpid(id, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  void remove_all() const {
    for (const char* end : {".safetensors", ".training.safetensors", ".svg"}) {
      std::filesystem::remove(path(std::string("m") + end));
    }
  }
  bool has_checkpoint() const { return std::filesystem::exists(path("m.training.safetensors")); }
  void expect_whole() const {
    for (const char* name : {"m.training.safetensors", "m.safetensors"}) {
      if (!std::filesystem::exists(path(name))) continue;
      EXPECT_NO_THROW(io::load(path(name))) << name;
      ++whole_;
    }
  }
  std::size_t pick(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(rng_); }

  std::mt19937 rng_;
  int moments_ = 0;
  mutable int whole_ = 0;
};

TEST_F(KillRank, EndsTheJobAndKeepsTheCheckpoint) {
  const std::string begin = train("m.safetensors --reproducible --force --save-every 1 --steps 30 --until 30");
  const std::string resume = "attn train --text text.txt --out m.safetensors --resume --save-every 1";
  out_of(train("whole.safetensors --reproducible --save-every 1 --steps 30 --until 30"));
  const pid_t undisturbed = start(4, begin);
  ASSERT_TRUE(ranks_met()) << read(path(kLog));
  const auto began = Clock::now();
  EXPECT_EQ(wait(undisturbed), 0);
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  EXPECT_EQ(written("m"), written("whole"));
  int killed = 0, finished = 0;
  double longest = 0;
  remove_all();
  while (killed < moments_ && !HasFailure()) {
    const int ranks = std::array{2, 3, 4, 8}[pick(4)];
    const pid_t job = start(ranks, has_checkpoint() ? resume : begin);
    ASSERT_TRUE(ranks_met()) << read(path(kLog));
    std::this_thread::sleep_for(std::chrono::duration<double>(std::uniform_real_distribution<>(0, seconds)(rng_)));
    const Ids ids = ranks_of(job);
    const auto victim = std::next(ids.begin(), ids.empty() ? 0 : static_cast<std::ptrdiff_t>(pick(ids.size())));
    const auto moment = Clock::now();
    const bool sent = !ids.empty() && ::kill(victim->second, SIGKILL) == 0;
    const int status = wait(job);
    expect_whole();
    if (status != 0) {
      ++killed, longest = std::max(longest, std::chrono::duration<double>(Clock::now() - moment).count());
      EXPECT_TRUE(sent) << read(path(kLog));
      EXPECT_EQ(status, 137) << read(path(kLog));
      EXPECT_THAT(read(path(kLog)), testing::HasSubstr("process rank " + std::to_string(sent ? victim->first : -1)));
      continue;
    }
    ++finished;
    EXPECT_EQ(written("m"), written("whole"));
    remove_all();
  }
  EXPECT_LT(longest, 10);
  EXPECT_EQ(wait(start(2, has_checkpoint() ? resume : begin)), 0);
  EXPECT_EQ(written("m"), written("whole"));
  std::printf(
      "%d ranks killed, %d runs had finished; %d files were there and whole; %.1f s until a job ended at most\n",
      killed, finished, whole_, longest);
}

}  // namespace
}  // namespace attn::test
