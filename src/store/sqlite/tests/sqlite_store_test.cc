#include "store/sqlite/sqlite_store.h"

#include <chrono>
#include <fstream>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/file.h"
#include "base/testing/temp_dir.h"
#include "store/testing/contract_test.h"

namespace tuft::store {
namespace {

class SqliteStorage final : public Storage {
 public:
  Result<std::unique_ptr<KeyValue>> open() override { return open_sqlite_store(directory_.path() / "deep/store.db"); }

 private:
  TempDir directory_;
};

INSTANTIATE_TEST_SUITE_P(Sqlite, StoreContract,
                         ::testing::Values(Candidate{"sqlite", [] { return std::make_unique<SqliteStorage>(); }}));

TEST(SqliteStore, IsReadableByItsOwnerAlone) {
  const TempDir directory;
  const auto path = directory.path() / "store.db";
  const auto store = open_sqlite_store(path);
  ASSERT_TRUE(store.ok()) << store.error().message;
  struct stat status = {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST(SqliteStore, BelongsToOneProcess) {
  const TempDir directory;
  const auto path = directory.path() / "store.db";
  const auto first = open_sqlite_store(path);
  ASSERT_TRUE(first.ok());
  const auto second = open_sqlite_store(path);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().reason, "store_locked");
  EXPECT_NE(second.error().message.find("another"), std::string::npos);
}

TEST(SqliteStore, ForeignFileIsRefusedAndUnchanged) {
  const TempDir directory;
  const auto path = directory.path() / "file_redis.json";
  const std::string json = R"({"persistence-tuft-server::session::1": {"value": "{}", "expires_at": null}})";
  std::ofstream(path) << json;
  const auto opened = open_sqlite_store(path);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kDataLoss);
  EXPECT_NE(opened.error().message.find("file_redis.json"), std::string::npos) << opened.error().message;
  EXPECT_EQ(*read_file(path, 1000), json);
}

TEST(SqliteStore, DamagedFileIsNotTakenForAnEmptyStore) {
  const TempDir directory;
  const auto path = directory.path() / "store.db";
  {
    const auto store = open_sqlite_store(path);
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(write_and_wait(**store, {.changes = {{"key" + std::to_string(i), std::string(500, 'v')}}}).ok());
    }
  }
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(40'000, '\x5a');
  }
  const auto store = open_sqlite_store(path);
  if (!store.ok()) {
    EXPECT_EQ(store.error().reason, "store_corrupt");
    return;
  }
  const auto found = scan_and_wait(**store, {"key"});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().reason, "store_corrupt");
}

TEST(SqliteStore, AcknowledgedWritesSurviveAKill) {
  const TempDir directory;
  const auto path = directory.path() / "store.db";
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto store = open_sqlite_store(path);
    for (int i = 0; store.ok(); ++i) {
      if (!write_and_wait(**store, {.changes = {{"count", std::to_string(i)}}}).ok()) break;
      if (::write(ends[1], &i, sizeof(i)) != sizeof(i)) break;
    }
    ::_exit(1);
  }
  ::close(ends[1]);
  int last = -1;
  for (int i = 0; i < 20; ++i) ASSERT_EQ(::read(ends[0], &last, sizeof(last)), static_cast<ssize_t>(sizeof(last)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  while (::read(ends[0], &last, sizeof(last)) == static_cast<ssize_t>(sizeof(last))) {
  }
  ::close(ends[0]);
  const auto store = open_sqlite_store(path);
  ASSERT_TRUE(store.ok()) << store.error().message;
  const auto count = get_and_wait(**store, "count");
  ASSERT_TRUE(count.ok() && *count);
  EXPECT_GE(std::stoi(**count), last);
}

// Makes the operating system fail writes: the files of this process may not grow beyond a limit.
TEST(SqliteStore, FullDiskIsAnErrorUntilThereIsSpace) {
  const TempDir directory;
  const auto store = open_sqlite_store(directory.path() / "store.db");
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE(write_and_wait(**store, {.changes = {{"before", "1"}}}).ok());
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit old = {};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{16 << 10, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status refused = write_and_wait(**store, {.changes = {{"large", std::string(1 << 20, 'x')}}});
  EXPECT_FALSE(refused.ok());
  EXPECT_FALSE((*store)->health().ok());
  ::setrlimit(RLIMIT_FSIZE, &old);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable) << refused.error().message;

  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!(*store)->health().ok() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_TRUE((*store)->health().ok());
  EXPECT_EQ(**get_and_wait(**store, "before"), "1");
  EXPECT_FALSE(get_and_wait(**store, "large")->has_value());
  EXPECT_TRUE(write_and_wait(**store, {.changes = {{"large", std::string(1 << 20, 'x')}}}).ok());
}

TEST(SqliteStore, UnwritablePathIsNamed) {
  const auto opened = open_sqlite_store("/proc/no/such/store.db");
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().message.find("/proc/no/such/store.db"), std::string::npos);
}

}  // namespace
}  // namespace tuft::store
