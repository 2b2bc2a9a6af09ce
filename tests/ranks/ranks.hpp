// The command under mpirun, as a user would start it.
#pragma once

#include <gmock/gmock.h>

#include <string>

#include "command/command.hpp"

namespace attn::test {

class OverRanks : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    std::string text;
    for (int i = 0; i < 400; ++i) text += "query " + std::to_string(i * i % 89) + " key value ";
    write("text.txt", text);
  }

  // A shell's line that runs another on so many ranks, each of which has its number in $rank.
  static std::string on(int ranks, const std::string& line) {
    return ATTN_SOURCE "/tests/mpi/run.sh " + std::to_string(ranks) +
           " sh -c 'rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; " + line + "'";
  }

  // Fails with one message of the command's, which names the rank.
  Ran fails(const std::string& line, int status, const std::string& part) const {
    const Ran ran = run(line);
    EXPECT_EQ(ran.status, status) << line << "\n" << ran.err;
    EXPECT_THAT(ran.err, testing::HasSubstr(part)) << line;
    std::size_t messages = 0;
    for (std::size_t at = 0; (at = ran.err.find("attn: error: rank ", at)) != std::string::npos; ++at) ++messages;
    EXPECT_EQ(messages, 1u) << ran.err;
    return ran;
  }

  // `more` begins with the value of --out, and its flags take the place of those here.
  std::string train(const std::string& more) const {
    std::string line = "attn train --text text.txt --layers 2 --heads 2 --width 16 --warmup 3 --eval-every 5";
    for (const auto& [flag, value] : {std::pair{" --context ", "16"},
                                      {" --batch ", "24"},
                                      {" --dropout ", "0.1"},
                                      {" --steps ", "12"},
                                      {" --lr ", "0.01"},
                                      {" --save-every ", "4"}}) {
      if (more.find(flag) == std::string::npos) line.append(flag).append(value);
    }
    return line + " --out " + more;
  }
  // Returns the losses in the lines of --json.
  static std::vector<double> losses(const std::string& lines) {
    std::vector<double> all;
    for (std::size_t at = 0; (at = lines.find("\"loss\":", at)) != std::string::npos; at += 7) {
      all.push_back(std::stod(lines.substr(at + 7)));
    }
    return all;
  }
  // Returns all that a run has written.
  std::vector<std::string> written(const std::string& name) const {
    std::vector<std::string> all;
    for (const char* end : {".safetensors", ".training.safetensors", ".svg"}) all.push_back(read(path(name + end)));
    return all;
  }
};

}  // namespace attn::test
