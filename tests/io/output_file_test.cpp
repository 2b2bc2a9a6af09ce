// Tests where a path leads for a writer, and what a kill leaves.
#include "io/output_file.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attn/io.hpp"
#include "io/helpers.hpp"
#include "io/output_folder.hpp"

namespace attn::test {
namespace {

class Output : public FolderTest {
 protected:
  io::Destination to(std::string_view name) const { return {path(name), "test"}; }
  bool same(std::string_view a, std::string_view b) const { return to(a).same_as(to(b)) && to(b).same_as(to(a)); }
  void link(const char* target, const char* name) const { std::filesystem::create_symlink(target, path(name)); }
};

TEST_F(Output, WritesThroughALinkWhoseTargetIsNotThereYet) {
  std::filesystem::create_directory(path("folder"));
  link("folder/second", "first");
  link("target", "folder/second");
  io::save_text(path("first"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(path("first")));
  EXPECT_TRUE(std::filesystem::is_symlink(path("folder/second")));
  EXPECT_EQ(read(path("folder/target")), "new");
}

TEST_F(Output, RefusesALinkIntoAFolderThatIsNotThere) {
  link("missing/target", "link");
  expect_error(Error::Kind::file, {"link", "No such file"}, [&] { io::save_text(path("link"), "new"); });
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
}

TEST_F(Output, LeavesNothingOfAFolderThatCannotBeOpened) {
#if defined(ATTN_SANITIZED)
  GTEST_SKIP() << "the sanitizer that looks at virtual calls opens files of its own";
#endif
  const int next = open("/dev/null", O_RDONLY);
  close(next);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);  // a folder can be made, and not be opened
  std::string error;
  try {
    io::OutputFolder folder(path("new"), "test");
  } catch (const Error& thrown) {
    error = thrown.what();
  }
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(error, testing::HasSubstr("no access"));
  EXPECT_TRUE(std::filesystem::is_empty(path("")));
}

TEST_F(Output, RefusesACircleOfLinks) {
  link("b", "a"), link("a", "b");
  expect_error(Error::Kind::file, {"symbolic links"}, [&] { io::save_text(path("a"), "new"); });
}

TEST_F(Output, KnowsOneFileByAllItsNames) {
  std::filesystem::create_directory(path("folder"));
  write(path("old"), "");
  link("old", "link"), link("new", "dangling"), link("folder", "way");
  std::filesystem::create_hard_link(path("old"), path("hard"));
  for (const auto& [a, b] : {std::pair{"new", "./new"},
                             {"new", "folder/../new"},
                             {"new", "dangling"},
                             {"folder/new", "way/new"},
                             {"old", "./old"},
                             {"old", "link"},
                             {"old", "hard"}}) {
    EXPECT_TRUE(same(a, b)) << a << " " << b;
  }
  EXPECT_FALSE(same("new", "other"));
  EXPECT_FALSE(same("old", "new"));
  EXPECT_FALSE(same("new", "folder/new"));
  EXPECT_TRUE(io::Destination("-", "test").same_as(io::Destination("/dev/stdout", "test")));
}

TEST_F(Output, SaysThatNobodyReads) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  const auto handler = signal(SIGPIPE, SIG_IGN);
  EXPECT_THROW(io::save_text("/dev/fd/" + std::to_string(ends[1]), "text"), io::ClosedPipe);
  signal(SIGPIPE, handler);
  close(ends[1]);
}

TEST_F(Output, IsWithoutANameUntilItIsCommitted) {
  const int nameless = open(path("").c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (nameless < 0) GTEST_SKIP() << "this file system has no files without names";
  close(nameless);
  write(path("old"), "old");
  for (const char* name : {"old", "new"}) {
    io::OutputFile file(path(name), "test");
    file.write("text");
    file.finish();
    EXPECT_EQ(read(path("old")), "old");
    EXPECT_THAT(names(), testing::ElementsAre("old"));
  }
}

TEST_F(Output, DoesNotReplaceWhatCameMeanwhileBySomethingTorn) {
  io::OutputFile file(path("x"), "test");
  write(path("x"), "another's");
  file.write("mine");
  file.commit();
  EXPECT_EQ(read(path("x")), "mine");
  EXPECT_THAT(names(), testing::ElementsAre("x"));
}

TEST_F(Output, RemovesTemporaryFilesWhenASignalEndsTheProcess) {
  const io::TemporaryName one(path("")), two(path(""));
  EXPECT_STRNE(one.c_str(), two.c_str());
  write(one.c_str(), "half"), write(two.c_str(), "half");
  EXPECT_EQ(names().size(), 2u);
  io::remove_temporary_files();
  EXPECT_TRUE(names().empty());
}

TEST_F(Output, ForgetsATemporaryNameThatIsRenamed) {
  {
    io::TemporaryName name(path(""));
    write(name.c_str(), "whole");
    EXPECT_EQ(name.rename_to(path("x")), 0);
    write(path("x"), "whole");
    io::remove_temporary_files();
  }
  EXPECT_THAT(names(), testing::ElementsAre("x"));
}

}  // namespace
}  // namespace attn::test
