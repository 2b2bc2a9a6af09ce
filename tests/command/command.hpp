// Runs the built command as a user would: through a shell, in an empty folder of its own.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "attn/io.hpp"
#include "attn/tensor.hpp"
#include "core/folder.hpp"
#include "core/largest.hpp"

namespace attn::test {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

inline const std::filesystem::path kTests = std::filesystem::path(ATTN_TEST_DATA).parent_path().parent_path();

struct Ran {
  int status = -1;
  std::string out, err;
};

class Command : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder()); }

  std::filesystem::path folder() const { return root_ / "work"; }
  std::filesystem::path path(const std::string& name) const { return folder() / name; }

  // Returns what a file holds, and nothing where there is none.
  static std::string read(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // A line of shell in which `attn` is the command built here.
  Ran run(const std::string& line) const {
    const auto out = root_ / "out", err = root_ / "err";
    const std::string bin = std::filesystem::path(ATTN_COMMAND).parent_path().string();
    const std::string whole = "cd '" + folder().string() + "' && PATH='" + bin + "':\"$PATH\" && unset NO_COLOR && { " +
                              line + "\n} >'" + out.string() + "' 2>'" + err.string() + "'";
    const int status = std::system(whole.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read(out), read(err)};
  }
  // The same, which must succeed; its standard output.
  std::string out_of(const std::string& line) const {
    const Ran ran = run(line);
    EXPECT_EQ(ran.status, 0) << line << "\n" << ran.err;
    return ran.out;
  }

  // The same, which must be refused: one line of error with all these parts, which it returns, nothing printed, and no
  // file changed.
  std::string refused(const std::string& line, int status, const std::vector<std::string>& parts) const {
    SCOPED_TRACE(line);
    const auto before = files();
    const Ran ran = run(line);
    EXPECT_EQ(ran.status, status) << ran.err;
    EXPECT_THAT(ran.err, StartsWith("attn: error: "));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    for (const std::string& part : parts) EXPECT_THAT(ran.err, HasSubstr(part));
    EXPECT_EQ(ran.out, "");
    EXPECT_TRUE(files() == before) << "files changed";
    return ran.err;
  }

  // Returns what `line` prints when its standard output is a terminal, whose width is known unless `columns` is 0. What
  // is `typed` there can be read from </proc/self/fd/1, and is shown as well.
  std::string on_terminal(const std::string& line, unsigned short columns = 0, const std::string& typed = "") const {
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    EXPECT_GE(terminal, 0);
    EXPECT_EQ(grantpt(terminal), 0);
    EXPECT_EQ(unlockpt(terminal), 0);
    const std::string name = ptsname(terminal);
    const int keep_open = open(name.c_str(), O_RDWR | O_NOCTTY);  // else reads fail before the child writes
    fcntl(terminal, F_SETFL, O_NONBLOCK);
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(ioctl(terminal, TIOCSWINSZ, &size), 0);
    EXPECT_EQ(::write(terminal, typed.data(), typed.size()), std::ssize(typed));
    std::atomic<bool> done = false;
    std::string text;
    std::thread reader([&] {
      char buffer[4096];
      for (bool last = false; !last;) {
        last = done;
        for (ssize_t got; (got = ::read(terminal, buffer, sizeof buffer)) > 0;)
          text.append(buffer, static_cast<std::size_t>(got));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    const Ran ran = run("{ " + line + "; } > " + name);
    done = true;
    reader.join();
    close(keep_open);
    close(terminal);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return text;
  }

  void write(const std::string& name, const std::string& text) const { test::write(path(name), text); }
  // Every file's content, by name.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder())) {
      all[entry.path().lexically_relative(folder())] = entry.is_regular_file() ? read(entry.path()) : "";
    }
    return all;
  }

  // text.txt, to be trained on: 2,000 words of eight.
  void write_words() const {
    std::mt19937 rng(1);
    constexpr const char* kWords[] = {"attend ", "query ", "key ", "value ", "head ", "mask ", "soft ", "sum.\n"};
    std::string text;
    for (int i = 0; i < 2000; ++i) text += kWords[rng() % 8];
    write("text.txt", text);
  }

  // The notebooks' input: x.csv and words.txt, and batch.npy with the same text twice.
  void write_six_words() const {
    write("x.csv", "0.43,0.15,0.89\n0.55,0.87,0.66\n0.57,0.85,0.64\n0.22,0.58,0.33\n0.77,0.25,0.10\n0.05,0.80,0.55\n");
    write("words.txt", "Your\njourney\nstarts\nwith\none\nstep\n");
    const Tensor x = io::load_tensor(path("x.csv"));
    const Tensor twice[] = {x, x};
    io::save_npy(path("batch.npy"), stack(twice));
  }

 private:
  const Folder root_;
};

}  // namespace attn::test
