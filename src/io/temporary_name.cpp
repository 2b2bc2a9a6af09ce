#include "io/temporary_name.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <system_error>

#include "io/file.hpp"

namespace attn::io {
namespace {

constexpr std::string_view kBegin = ".attn-", kEnd = ".tmp";
constexpr int kDigits = 16;

enum class State { free, taken, named };

// A signal handler may read neither a string that is being freed nor a container that is being changed.
struct Slot {
  std::atomic<State> state = State::free;
  std::array<char, PATH_MAX> path{};
};
std::array<Slot, 16> slots;

// -1 where all are taken or the path is too long: such a name is out of a signal handler's sight.
int take_slot(const std::string& path) noexcept {
  for (std::size_t i = 0; i < slots.size() && path.size() < PATH_MAX; ++i) {
    State free = State::free;
    if (!slots[i].state.compare_exchange_strong(free, State::taken)) continue;
    std::memcpy(slots[i].path.data(), path.c_str(), path.size() + 1);
    slots[i].state = State::named;
    return static_cast<int>(i);
  }
  return -1;
}

std::string random_name() {
  std::random_device random;
  std::array<char, 32> name{};
  const int length =
      std::snprintf(name.data(), name.size(), "%s%08x%08x%s", kBegin.data(), random(), random(), kEnd.data());
  return {name.data(), static_cast<std::size_t>(length)};
}

bool is_random_name(const std::string& name) {
  if (name.size() != kBegin.size() + kDigits + kEnd.size() || !name.starts_with(kBegin) || !name.ends_with(kEnd)) {
    return false;
  }
  const auto digits = name.begin() + kBegin.size();
  return std::all_of(digits, digits + kDigits, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// A folder cannot be opened for writing, and on some file systems a file that is not cannot be locked.
int open_found(const char* path) {
  const int file = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  return file >= 0 || errno != EISDIR ? file : open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// While the lock is held no process that has just made the file takes it for its own.
void remove_if_abandoned(const std::filesystem::path& path) {
  const Descriptor found(open_found(path.c_str()));
  std::error_code ignored;
  if (found.get() >= 0 && flock(found.get(), LOCK_EX | LOCK_NB) == 0) std::filesystem::remove_all(path, ignored);
}

}  // namespace

TemporaryName::TemporaryName(const std::filesystem::path& folder)
    : path_(folder / random_name()), slot_(take_slot(path_.native())) {}

TemporaryName::~TemporaryName() {
  if (path_.empty()) return;
  unlink(path_.c_str());
  forget();
}

int TemporaryName::rename_to(const std::filesystem::path& path) noexcept {
  if (std::rename(path_.c_str(), path.c_str()) != 0) return -1;
  forget();
  path_.clear();
  return 0;
}

void TemporaryName::forget() noexcept {
  if (slot_ >= 0) slots[static_cast<std::size_t>(slot_)].state = State::free;
}

int create_temporary(std::optional<TemporaryName>& name, const std::filesystem::path& folder, mode_t mode) {
  while (true) {
    name.emplace(folder);
    const int file = open(name->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (file >= 0) mark_living(file);
    if (file < 0 || is_named(file)) return file;
    close(file);
  }
}

void mark_living(int fd) noexcept {
  while (flock(fd, LOCK_EX) != 0 && errno == EINTR) {
  }
}

bool is_named(int fd) noexcept {
  struct stat info {};
  return fstat(fd, &info) == 0 && info.st_nlink > 0;
}

void remove_abandoned(const std::filesystem::path& folder) noexcept {
  std::error_code failed;
  for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    if (is_random_name(at->path().filename().native())) remove_if_abandoned(at->path());
  }
}

void remove_temporary_files() noexcept {
  for (const Slot& slot : slots) {
    if (slot.state == State::named) unlink(slot.path.data());
  }
}

}  // namespace attn::io
