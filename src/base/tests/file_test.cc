#include "base/file.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <iterator>
#include <string_view>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"

namespace tuft {
namespace {

TEST(File, AtomicWriteReplacesTheContentAndLeavesNothingBeside) {
  const TempDir directory;
  const auto path = directory / "state.json";
  ASSERT_TRUE(write_file_atomically(path, "one").ok());
  ASSERT_TRUE(write_file_atomically(path, "two").ok());
  EXPECT_EQ(*read_file(path, 100), "two");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(File, AReadBeyondTheEndReturnsWhatIsThere) {
  const TempDir directory;
  ASSERT_TRUE(write_file_atomically(directory / "a", "012345").ok());
  const int descriptor = ::open((directory / "a").c_str(), O_RDONLY);
  char out[4] = {};
  EXPECT_EQ(read_at(descriptor, 1, out, sizeof out), 4);
  EXPECT_EQ(std::string_view(out, 4), "1234");
  EXPECT_EQ(read_at(descriptor, 4, out, sizeof out), 2);
  EXPECT_EQ(std::string_view(out, 2), "45");
  EXPECT_EQ(read_at(descriptor, 6, out, sizeof out), 0);
  ::close(descriptor);
  EXPECT_EQ(read_at(descriptor, 0, out, sizeof out), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST(File, AFullDiskHasAReasonOfItsOwn) {
  for (const int code : {ENOSPC, EDQUOT}) {
    const Error full = file_error("write", "/disk/a", code);
    EXPECT_EQ(full.code, ErrorCode::kResourceExhausted);
    EXPECT_EQ(full.reason, kDiskFull);
    EXPECT_EQ(full.message.find("cannot write /disk/a: "), 0U) << full.message;
  }
  EXPECT_EQ(file_error("open", "/disk/a", ENOENT).code, ErrorCode::kNotFound);
  EXPECT_EQ(file_error("write", "/disk/a", EIO).code, ErrorCode::kInternal);
}

TEST(File, AKilledWriteIsRemovedByNameOfItsProcess) {
  const TempDir directory;
  const auto path = directory / "state.json";
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none = {0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    ::setrlimit(RLIMIT_FSIZE, &none);  // the write ends the process
    (void)write_file_atomically(path, "one");
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
  remove_unfinished_writes(path);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 0);
}

TEST(File, ReportsMissingAndTooLargeFiles) {
  const TempDir directory;
  const auto path = directory / "ten_bytes";
  EXPECT_EQ(read_file(directory / "nothing", 10).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(write_file_atomically(path, "0123456789").ok());
  EXPECT_TRUE(read_file(path, 10).ok());
  EXPECT_EQ(read_file(path, 9).error().code, ErrorCode::kPayloadTooLarge);
}

TEST(File, ExpandsOnlyALeadingTilde) {
  ::setenv("HOME", "/home/someone", 1);
  EXPECT_EQ(expand_user("~/models"), "/home/someone/models");
  EXPECT_EQ(expand_user("~"), "/home/someone/");
  EXPECT_EQ(expand_user("~other/x"), "~other/x");
  EXPECT_EQ(expand_user("/a/~"), "/a/~");
}

}  // namespace
}  // namespace tuft
