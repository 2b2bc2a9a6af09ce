// The command, ended by signals at random moments. ATTN_KILL_MOMENTS is how many in all (40), ATTN_KILL_SEED repeats a
// run, as far as a machine's timing can be repeated.
#pragma once

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "attn/random.hpp"
#include "command/command.hpp"

namespace attn::test {

using Files = std::map<std::string, std::string>;  // contents by name

// `attn LINE` in a folder, its words separated by one space each.
class Process {
 public:
  Process(const std::filesystem::path& folder, const std::string& line, const std::string& out = "/dev/null") {
    std::vector<std::string> words{"attn"};
    std::istringstream rest(line);
    for (std::string word; rest >> word;) words.push_back(word);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    id_ = fork();
    if (id_ != 0) return;
    const bool ready = chdir(folder.c_str()) == 0 && freopen(out.c_str(), "w", stdout) && freopen(kLog, "a", stderr);
    if (ready) execv(ATTN_COMMAND, arguments.data());
    _exit(127);
  }

  void kill(int signal) const { ::kill(id_, signal); }
  // Returns the end as a shell tells it: the exit code, or 128 + the signal.
  int wait() const {
    int status = 0;
    waitpid(id_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  static constexpr const char* kLog = "../stderr";

 private:
  pid_t id_ = -1;
};

struct Tally {
  int moments = 0, finished = 0, leftovers = 0;
  std::map<int, int> ended_by;

  std::string text() const {
    const auto by = [&](int signal) { return std::to_string(ended_by.count(signal) ? ended_by.at(signal) : 0); };
    return std::to_string(moments) + " moments: " + by(SIGKILL) + " SIGKILL, " + by(SIGTERM) + " SIGTERM, " +
           by(SIGINT) + " SIGINT, " + std::to_string(finished) + " had finished; " + std::to_string(leftovers) +
           " times a whole file with a temporary name after SIGKILL";
  }
};

class KillTest : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    const char* given = std::getenv("ATTN_KILL_SEED");
    const auto seed = given ? static_cast<unsigned>(std::stoul(given)) : std::random_device()();
    std::printf("ATTN_KILL_SEED=%u\n", seed);
    std::fflush(stdout);  // else each child has it to write again
    rng_.seed(seed);
  }
  void TearDown() override {
    if (tally_.moments > 0) std::printf("%s%s\n", is_long() ? "\r" : "", tally_.text().c_str());
    if (HasFailure()) std::printf("%s", read(path(Process::kLog)).c_str());
    Command::TearDown();
  }

  // One of `parts` that all moments are divided into.
  static int moments(int parts) {
    const int all = is_long() ? std::stoi(std::getenv("ATTN_KILL_MOMENTS")) : 40;
    return (all + parts - 1) / parts;
  }
  static bool is_long() { return std::getenv("ATTN_KILL_MOMENTS") != nullptr; }

  std::size_t pick(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(rng_); }

  // Returns how long the line takes, undisturbed.
  double seconds_of(const std::string& line, const std::string& out = "/dev/null") const {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(Process(folder(), line, out).wait(), 0) << line << "\n" << read(path(Process::kLog));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  struct End {
    int signal, status;
    bool by_signal() const { return status == 128 + signal; }
  };
  // Runs the line, and sends it a signal at a random moment of its first `seconds`.
  End kill_at_random(const std::string& line, double seconds, const std::string& out = "/dev/null") {
    const End unfinished = [&] {
      const int signal = std::array{SIGKILL, SIGTERM, SIGINT}[pick(3)];
      const Process process(folder(), line, out);
      std::this_thread::sleep_for(std::chrono::duration<double>(std::uniform_real_distribution<>(0, seconds)(rng_)));
      process.kill(signal);
      return End{signal, process.wait()};
    }();
    ++tally_.moments;
    unfinished.status == 0 ? ++tally_.finished : ++tally_.ended_by[unfinished.signal];
    if (is_long()) std::printf("\r%s", tally_.text().c_str()), std::fflush(stdout);
    return unfinished;
  }

  // Expects no file beside `expected`, but for one on its way to its name after a kill -9. The next run that gets to
  // write a file removes it.
  void expect_only(const std::vector<std::string>& expected, const End& end) {
    std::string left;
    for (const auto& entry : std::filesystem::directory_iterator(folder())) {
      const std::string name = entry.path().filename();
      if (std::count(expected.begin(), expected.end(), name) > 0) continue;
      const bool abandoned = end.by_signal() && (end.signal == SIGKILL || name == left_);
      EXPECT_TRUE(abandoned && name.starts_with(".attn-") && left.empty())
          << name << " after signal " << end.signal << ", status " << end.status;
      left = name;
    }
    tally_.leftovers += !left.empty() && left != left_;
    left_ = left;
  }

  Tally tally_;

 private:
  std::string left_;  // by a run before
  std::mt19937 rng_;
};

}  // namespace attn::test
