// A file is on the disk before it gets its name: fsync is this program's own here, and tells when it was called.
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "io/helpers.hpp"
#include "io/output_file.hpp"

namespace {

std::optional<std::string> watched;  // a name that must not be there yet
int synced = 0;
bool was_named = false;

}  // namespace

extern "C" int fsync(int fd) {
  ++synced;
  was_named = was_named || (watched && std::filesystem::exists(*watched));
  return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace attn::io {
namespace {

TEST(Sync, ComesBeforeTheName) {
  const std::string path = testing::TempDir() + "attn-sync-" + std::to_string(getpid());
  watched = path, synced = 0, was_named = false;
  OutputFile file{Destination(path, "test")};
  const std::string text = "text";
  file.write(std::as_bytes(std::span(text)));
  file.commit();
  EXPECT_EQ(synced, 1);
  EXPECT_FALSE(was_named);
  EXPECT_TRUE(std::filesystem::exists(path));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace attn::io
