#include "train/lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <system_error>

#include "attn/error.hpp"
#include "common/format.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"

namespace attn::tool {
namespace {

std::string holder(int file) {
  std::array<char, 20> text{};
  const ssize_t got = pread(file, text.data(), text.size(), 0);
  const auto end =
      std::find_if(text.begin(), text.begin() + std::max<ssize_t>(got, 0), [](char c) { return c < '0' || c > '9'; });
  return end == text.begin() ? "another process" : "process " + std::string(text.begin(), end);
}

}  // namespace

TrainingLock::TrainingLock(const std::filesystem::path& path, const std::filesystem::path& model)
    : model_(model), path_(path) {
  while (!take()) {
  }
  write_process_id();
}

TrainingLock::~TrainingLock() { unlink(path_.c_str()); }

bool TrainingLock::take() {
  file_.reset(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (file_.get() < 0) {
    const std::string why = std::generic_category().message(errno);
    throw Error(Error::Kind::file, "--out", "a folder in which a model can be trained",
                formatted("no way to lock \"{}\" ({})", escaped(path_.string()), why));
  }
  if (flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      throw Error(Error::Kind::file, "--out", "a model that no other training writes",
                  formatted("{} training \"{}\"", holder(file_.get()), escaped(model_.string())),
                  "wait until it ends, or give another --out");
    }
    return errno != EINTR;  // some file systems have no locks: better trained without
  }
  // The one before may have taken the file away since it was opened.
  struct stat mine {};
  struct stat named {};
  return fstat(file_.get(), &mine) == 0 && stat(path_.c_str(), &named) == 0 && mine.st_ino == named.st_ino &&
         mine.st_dev == named.st_dev;
}

void TrainingLock::write_process_id() {
  const std::string text = std::to_string(getpid()) + "\n";
  // A full disk is for the first checkpoint to report.
  if (ftruncate(file_.get(), 0) == 0 && pwrite(file_.get(), text.data(), text.size(), 0) < 0) return;
}

}  // namespace attn::tool
