// Preloaded by tests/kill: ends the process, or fails as a full disk does, at one of its operations on files.
// ATTN_STOP_AT is which one, counted from 1, and ATTN_STOP_BY is kill or fail. It tells of that on standard error.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<long> operations{0};

// True where the operation is to fail. One that is killed does not take place.
bool stops_here() {
  static const char* const at = std::getenv("ATTN_STOP_AT");
  static const char* const by = std::getenv("ATTN_STOP_BY");
  if (at == nullptr || ++operations != std::atol(at)) return false;
  constexpr char told[] = "stopped at an operation\n";
  if (write(STDERR_FILENO, told, sizeof told - 1) < 0) std::abort();
  if (std::strcmp(by, "kill") == 0) kill(getpid(), SIGKILL);
  errno = ENOSPC;
  return true;
}

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool creates(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

int opened(const char* name, const char* path, int flags, mode_t mode) {
  return creates(flags) && stops_here() ? -1 : real<int(const char*, int, ...)>(name)(path, flags, mode);
}

mode_t mode_of(int flags, va_list rest) { return creates(flags) ? va_arg(rest, mode_t) : 0; }

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return opened("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return opened("open64", path, flags, mode);
}

int fsync(int file) { return stops_here() ? -1 : real<int(int)>("fsync")(file); }

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) {
  if (stops_here()) return -1;
  return real<int(int, const char*, int, const char*, int)>("linkat")(from_folder, from, to_folder, to, flags);
}

int rename(const char* from, const char* to) {
  return stops_here() ? -1 : real<int(const char*, const char*)>("rename")(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  if (stops_here()) return -1;
  return real<int(int, const char*, int, const char*, unsigned)>("renameat2")(from_folder, from, to_folder, to, flags);
}

// A removal may be where the process is killed, but it cannot run out of space.
int unlink(const char* path) {
  stops_here();
  return real<int(const char*)>("unlink")(path);
}

int unlinkat(int folder, const char* path, int flags) {
  stops_here();
  return real<int(int, const char*, int)>("unlinkat")(folder, path, flags);
}

int remove(const char* path) {
  stops_here();
  return real<int(const char*)>("remove")(path);
}

int mkdir(const char* path, mode_t mode) {
  return stops_here() ? -1 : real<int(const char*, mode_t)>("mkdir")(path, mode);
}

}  // extern "C"
