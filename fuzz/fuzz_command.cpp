// Command lines: bytes up to the first zero are words, a line each; what follows, up to the next zeros, are the files
// "a", "b" and "c.csv" of a folder in which the command runs, in this process.
#include <fcntl.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "bytes.hpp"
#include "command.hpp"
#include "folder.hpp"

namespace attn::fuzz {
namespace {

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  while (!line.empty() && words.size() < 40) {
    const std::size_t end = std::min(line.find('\n'), line.size());
    words.emplace_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

// A number that asks for honest work which would take long, but none that is out of every range.
bool is_long_work(const std::string& word) {
  std::size_t digits = 0;
  for (const char c : word) digits = std::isdigit(static_cast<unsigned char>(c)) != 0 ? digits + 1 : 0;
  return digits > 2 && digits < 16;
}

// randn:99,99,99,99: more numbers than are drawn in a moment.
bool is_large(const std::string& word) {
  return word.find(':') != std::string::npos && std::count(word.begin(), word.end(), ',') > 2;
}

// Within the folder, and in bounded time.
bool is_safe(const std::vector<std::string>& words) {
  return std::none_of(words.begin(), words.end(), [](const std::string& word) {
    return word.find('/') != std::string::npos || word.find("..") != std::string::npos || is_long_work(word) ||
           is_large(word) || (word.find_first_of("eE") != std::string::npos && is_long_work(word + "00"));
  });
}

bool holds(const std::vector<std::string>& words, const char* word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Verbs that take long by themselves are parsed, and refused at their last word; training ends at the first step.
void bound(std::vector<std::string>& words) {
  if (words.empty()) return;
  const std::string verb = words.front();  // a copy: words may move
  if (verb == "bench" || verb == "demo" || verb == "check") words.emplace_back("--nothing");
  if (verb != "train" || holds(words, "--resume")) return;
  for (const char* word : {"--layers=1", "--width=8", "--heads=2", "--context=8", "--batch=2", "--until=1"}) {
    const std::string flag(word, std::string_view(word).find('='));
    if (!holds(words, flag.c_str())) words.emplace_back(word);
  }
}

void silence() {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO}) dup2(nothing, fd);
}

}  // namespace
}  // namespace attn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attn::fuzz;
  static const Folder folder;
  static const bool silent = (silence(), true);
  Bytes bytes(data, size);
  std::vector<std::string> words = words_of(bytes.text());
  if (!silent || !is_safe(words)) return -1;
  bound(words);
  folder.clear();
  for (const char* name : {"a", "b", "c.csv"}) folder.write(name, bytes.text());
  std::filesystem::current_path(folder.path());
  words.insert(words.begin(), "attn");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  const int status = attn::tool::run_command(arguments);
  if (status < 0 || status > 3) std::abort();
  return 0;
}
