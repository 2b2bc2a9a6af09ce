// Opening, naming and replacing files: load, load_tensor, load_lines and the writers' promise.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "attn/io.hpp"
#include "io/helpers.hpp"

namespace attn::test {
namespace {

using File = FolderTest;

// Runs f with a descriptor replaced by `fd`.
void with_descriptor(int descriptor, int fd, const std::function<void()>& f) {
  const int saved = dup(descriptor);
  ASSERT_GE(dup2(fd, descriptor), 0);
  f();
  dup2(saved, descriptor);
  close(saved);
  close(fd);
}

TEST_F(File, LoadsByContentNotByName) {
  for (const auto& [name, format] : {std::pair{"le_f4.npy", io::Format::npy},
                                     {"stored.npz", io::Format::npz},
                                     {"empty.npz", io::Format::npz},
                                     {"savetxt.csv", io::Format::csv},
                                     {"dtypes.safetensors", io::Format::safetensors}}) {
    SCOPED_TRACE(name);
    std::filesystem::copy_file(data_path(name), path("file"), std::filesystem::copy_options::overwrite_existing);
    EXPECT_EQ(io::load(path("file")).format, format);
  }
}

TEST_F(File, TakesATableWhoseNinthCharacterIsABrace) {
  write(path("x.csv"), "# shape {1, 2}\n1,2\n");
  EXPECT_EQ(io::load_tensor(path("x.csv")).shape(), (Shape{1, 2}));
}

TEST_F(File, PicksATensor) {
  expect_golden(io::load_tensor(data_path("le_f4.npy")), DType::f32, {2, 3});
  expect_golden(io::load_tensor(data_path("stored.npz"), "turned"), DType::i64, {2, 3, 4});
  EXPECT_EQ(io::load_tensor(data_path("zeros.npz")).numel(), 512 * 512);
  const auto unclear = [](const char* file, const char* name, const std::vector<std::string>& parts) {
    expect_error(Error::Kind::argument, parts, [&] { io::load_tensor(data_path(file), name); });
  };
  unclear("stored.npz", "", {"one tensor", "\"x\", \"turned\", \"mask\""});
  unclear("stored.npz", "y", {"named \"y\"", "\"x\", \"turned\""});
  unclear("zeros.npz", "y", {"\"zeros\""});
  unclear("le_f4.npy", "x", {"one without a name"});
  unclear("empty.npz", "", {"no tensors"});
}

TEST_F(File, SaysWhyItCannotRead) {
  const auto fails = [](const std::filesystem::path& path, const std::vector<std::string>& parts) {
    expect_error(Error::Kind::file, parts, [&] { io::load(path); });
  };
  fails(path("missing.npy"), {"[load]", "no file", "missing.npy"});
  fails(path(""), {"a folder"});
  fails("", {"no file"});
  fails(path("missing/x.npy"), {"no file", "missing/x.npy"});
  fails("/dev/zero", {"a pipe or device", "pass -"});
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  fails(path("pipe"), {"a pipe or device"});  // and does not wait for a writer
}

TEST_F(File, NamesTheFileInErrors) {
  write(path("bad.npy"), "\x93NUMPY and no more");
  expect_error(Error::Kind::data, {"[parse_npy]", "bad.npy"}, [&] { io::load(path("bad.npy")); });
  const std::string deep = "models--with-a-long-name/snapshots/0123456789012345678901234567890123456789.npy";
  std::filesystem::create_directories(path(deep).parent_path());
  write(path(deep), "\x93NUMPY and no more");
  expect_error(Error::Kind::data, {path(deep).native() + "\""}, [&] { io::load(path(deep)); });
  write(path("empty.npy"), "");
  expect_error(Error::Kind::data, {"an empty file", "empty.npy"}, [&] { io::load(path("empty.npy")); });
}

TEST_F(File, ReadsStandardInput) {
  const int file = open(data_path("le_f4.npy").c_str(), O_RDONLY);
  with_descriptor(STDIN_FILENO, file, [] { expect_golden(io::load_tensor("-"), DType::f32, {2, 3}); });
}

TEST_F(File, ReadsAPipeLargerThanItsBuffer) {
  const Tensor large = Tensor::full({300, 1000}, 0.25);
  io::save_npy(path("large.npy"), large);
  const std::string bytes = read(path("large.npy"));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::thread writer([&] {
    for (std::string_view rest = bytes; !rest.empty();) {
      rest.remove_prefix(static_cast<std::size_t>(::write(ends[1], rest.data(), rest.size())));
    }
    close(ends[1]);
  });
  with_descriptor(STDIN_FILENO, ends[0], [&] { expect_same(io::load_tensor("-"), large); });
  writer.join();
}

TEST_F(File, WritesStandardOutput) {
  for (const char* name : {"-", "/dev/stdout"}) {
    SCOPED_TRACE(name);
    write(path("out"), "before ");
    const int out = open(path("out").c_str(), O_WRONLY | O_APPEND);
    with_descriptor(STDOUT_FILENO, out, [&] {
      io::save_text(name, "and ");
      io::save_text(name, "after");
    });
    EXPECT_EQ(read(path("out")), "before and after");
  }
  const int out = open(path("out.npy").c_str(), O_WRONLY | O_CREAT, 0600);
  with_descriptor(STDOUT_FILENO, out, [] { io::save_tensor("-", golden(DType::f32, {2, 3})); });
  EXPECT_EQ(read(path("out.npy")), read(data_path("le_f4.npy")));
}

TEST_F(File, SavesByExtension) {
  const Tensor x = golden(DType::f32, {2, 3});
  for (const auto& [name, format] : {std::pair{"x.npy", io::Format::npy},
                                     {"x.npz", io::Format::npz},
                                     {"x.NPZ", io::Format::npz},
                                     {"x.safetensors", io::Format::safetensors},
                                     {"x.csv", io::Format::csv}}) {
    SCOPED_TRACE(name);
    io::save_tensor(path(name), x);
    EXPECT_EQ(io::load(path(name)).format, format);
    expect_same(io::load_tensor(path(name)), x);
  }
  expect_error(Error::Kind::argument, {".npy", "x.txt"}, [&] { io::save_tensor(path("x.txt"), x); });
  expect_error(Error::Kind::argument, {".safetensors"}, [&] { io::save_tensor(path("x"), x); });
}

TEST_F(File, ReplacesAFileWholeAndKeepsItsRights) {
  write(path("x.npy"), "old");
  ASSERT_EQ(chmod(path("x.npy").c_str(), 0640), 0);
  const mode_t mask = umask(077);  // of which a file that is there already knows nothing
  io::save_npy(path("x.npy"), golden(DType::f32, {2, 3}));
  umask(mask);
  EXPECT_EQ(read(path("x.npy")), read(data_path("le_f4.npy")));
  struct stat info {};
  ASSERT_EQ(stat(path("x.npy").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
  EXPECT_THAT(names(), testing::ElementsAre("x.npy"));
}

TEST_F(File, GivesANewFileTheUsualRights) {
  const mode_t mask = umask(027);
  io::save_text(path("x"), "text");
  umask(mask);
  struct stat info {};
  ASSERT_EQ(stat(path("x").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
}

TEST_F(File, WritesThroughALink) {
  write(path("target"), "old");
  std::filesystem::create_symlink("target", path("link"));
  io::save_text(path("link"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(read(path("target")), "new");
}

TEST_F(File, SaysWhyItCannotWrite) {
  const auto fails = [](const std::filesystem::path& path, const std::vector<std::string>& parts) {
    expect_error(Error::Kind::file, parts, [&] { io::save_text(path, "text"); });
  };
  fails(path("missing/x"), {"[save_text]", "missing/x", "No such file"});
  fails(path("missing/"), {"folder"});
  std::filesystem::create_directory(path("folder"));
  fails(path("folder"), {"a folder"});
  fails("", {"an empty path"});
  write(path("plain"), "");
  fails(path("plain") / "x", {"Not a directory"});
  fails("/dev/full", {"No space left"});
  fails(path(std::string(300, 'x')), {"name too long"});
  EXPECT_THAT(names(), testing::UnorderedElementsAre("folder", "plain"));
}

TEST_F(File, ANameWithAZeroByteIsNotAShorterOne) {
  io::save_text(path("x.csv"), "1,2\n");
  const std::string longer = path("x.csv").string() + std::string(1, '\0') + "y";
  expect_error(Error::Kind::file, {"a zero byte in the name", "x.csv"}, [&] { io::load(longer); });
  expect_error(Error::Kind::file, {"a zero byte in the name", "x.csv"}, [&] { io::save_text(longer, "3\n"); });
  EXPECT_EQ(io::load_tensor(path("x.csv")).shape(), (Shape{1, 2}));
}

TEST_F(File, RefusesAReadOnlyFile) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write anything";
  write(path("x"), "old");
  chmod(path("x").c_str(), 0400);
  expect_error(Error::Kind::file, {"Permission denied"}, [&] { io::save_text(path("x"), "new"); });
  EXPECT_EQ(read(path("x")), "old");
}

// A limit on file sizes stands for a full disk: the write fails half way.
TEST_F(File, LeavesTheOldFileWhenAWriteFails) {
  write(path("x.npy"), "old");
  struct rlimit limit {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = limit;
  small.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Tensor large = Tensor::zeros({100, 100});
  const auto fails = [&](auto save) { expect_error(Error::Kind::file, {"a failed write", "File too large"}, save); };
  fails([&] { io::save_npy(path("x.npy"), large); });
  fails([&] { io::save_npz(path("x.npy"), {.tensors = {{"x", large}}}); });
  fails([&] { io::save_safetensors(path("x.npy"), {.tensors = {{"x", large}}}); });
  fails([&] { io::save_csv(path("x.npy"), large); });
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(read(path("x.npy")), "old");
  EXPECT_THAT(names(), testing::ElementsAre("x.npy"));
}

// Killed half way, by the same limit.
TEST_F(File, LeavesNothingBesideAFileWhenItIsKilled) {
  const int nameless = open(path("").c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (nameless < 0) GTEST_SKIP() << "this file system has no files without names";
  close(nameless);
  write(path("x.npy"), "old");
  const auto save = [&] {
    const struct rlimit none {
    }, small{4096, 4096};
    setrlimit(RLIMIT_CORE, &none), setrlimit(RLIMIT_FSIZE, &small);
    signal(SIGXFSZ, SIG_DFL);
    io::save_npy(path("x.npy"), Tensor::zeros({100, 100}));
  };
  EXPECT_EXIT(save(), testing::KilledBySignal(SIGXFSZ), "");
  EXPECT_EQ(read(path("x.npy")), "old");
  EXPECT_THAT(names(), testing::ElementsAre("x.npy"));
}

TEST_F(File, TakesWritersSideBySide) {
  const auto write = [&](double value) {
    for (int i = 0; i < 50; ++i) io::save_npy(path("x.npy"), Tensor::full({30}, value));
  };
  std::thread other(write, 1);
  write(2);
  other.join();
  const Tensor x = io::load_tensor(path("x.npy"));
  EXPECT_EQ(x.at({0}), x.at({29}));
  EXPECT_THAT(names(), testing::ElementsAre("x.npy"));
}

TEST_F(File, WritesStraightToPipesAndDevices) {
  io::save_npy("/dev/null", golden(DType::f32, {2, 3}));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  std::string found;
  std::thread reader([&] { found = read(path("pipe")); });
  io::save_text(path("pipe"), "through");
  reader.join();
  EXPECT_EQ(found, "through");
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));
}

TEST_F(File, LoadsLines) {
  write(path("words"), "Your\r\njourney\n\nstarts");
  EXPECT_THAT(io::load_lines(path("words")), testing::ElementsAre("Your", "journey", "", "starts"));
  write(path("words"), "one\n");
  EXPECT_THAT(io::load_lines(path("words")), testing::ElementsAre("one"));
  write(path("words"), "");
  EXPECT_TRUE(io::load_lines(path("words")).empty());
  expect_error(Error::Kind::file, {"[load_lines]", "no file"}, [&] { io::load_lines(path("none")); });
}

}  // namespace
}  // namespace attn::test
