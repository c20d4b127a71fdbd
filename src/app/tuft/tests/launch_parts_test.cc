#include <atomic>
#include <cstdlib>
#include <fstream>
#include <future>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/tuft/address_file.h"
#include "app/tuft/kept_views.h"
#include "app/tuft/key_file.h"
#include "app/tuft/runtime_directory.h"
#include "app/tuft/standby.h"
#include "app/tuft/sweeper.h"
#include "app/tuft/terminal/http_client.h"
#include "app/tuft/worker_command.h"
#include "base/file.h"
#include "base/host.h"
#include "base/testing/temp_dir.h"
#include "config/key_hash.h"
#include "control/control_plane.h"
#include "control/persistence/persistence.h"
#include "store/leadership.h"
#include "store/memory_store.h"

namespace tuft::app {
namespace {

TEST(AddressFile, HoldsTheAddressWhileTheServerLives) {
  const TempDir home;
  const auto path = home / "tuft_current_server";
  {
    AddressFile file(path);
    ASSERT_TRUE(file.write("http://127.0.0.1:1").ok());
    EXPECT_EQ(*read_file(path, 100), "http://127.0.0.1:1");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(AddressFile, LeavesTheFileOfAnotherServerAlone) {
  const TempDir home;
  const auto path = home / "tuft_current_server";
  {
    AddressFile file(path);
    ASSERT_TRUE(file.write("http://127.0.0.1:1").ok());
    std::ofstream(path) << "http://127.0.0.1:2";
  }
  EXPECT_EQ(*read_file(path, 100), "http://127.0.0.1:2");
}

TEST(AddressFile, RemovesOnlyTheUnfinishedFilesOfDeadServers) {
  const TempDir home;
  const auto path = home / "tuft_current_server";
  const std::string own = std::to_string(::getpid());
  const std::string dead = "tuft_current_server.tmp-999999999.4f9a";
  const std::vector<std::string> others = {"tuft_current_server.tmp-" + own + ".4f9a", "tuft_current_server.tmp-notes",
                                           "tuft_current_server.tmp-999999999", "tuft_current_server.backup",
                                           "other.tmp-999999999.4f9a"};
  std::ofstream(home / dead) << "http://127.0.0.1:1";
  for (const std::string& other : others) std::ofstream(home / other) << "kept";
  AddressFile file(path);
  ASSERT_TRUE(file.write("http://127.0.0.1:2").ok());
  EXPECT_FALSE(std::filesystem::exists(home / dead));
  for (const std::string& other : others) EXPECT_TRUE(std::filesystem::exists(home / other)) << other;
}

TEST(AddressFile, WritesIpv6InBrackets) {
  EXPECT_EQ(http_address("::1", 80), "http://[::1]:80");
  EXPECT_EQ(http_address("localhost", 10610), "http://localhost:10610");
}

class Views : public ::testing::Test {
 protected:
  Views() { config_.checkpoint_dir = directory_.path(); }
  // A view of no records.
  KeptViews::View make_view() const {
    auto records =
        control::Persistence::open_view(store::make_memory_store(std::make_shared<store::MemoryContents>()), config_);
    EXPECT_TRUE(records.ok());
    return control::ControlPlane::create(config_, {}, system_clock(), std::move(records).value());
  }

 private:
  const TempDir directory_;
  config::ServerConfig config_;
};

// Slow readers of a server that stands by must not fill its memory with former states.
TEST_F(Views, AreLimitedWhateverRequestsStillUse) {
  KeptViews views;
  std::vector<KeptViews::View> in_use;
  for (size_t i = 0; i < KeptViews::kMost; ++i) {
    ASSERT_TRUE(views.has_room());
    in_use.push_back(make_view());
    views.add(in_use.back());
  }
  EXPECT_FALSE(views.has_room());
  EXPECT_TRUE(views.take_unused().empty());
  in_use.pop_back();
  EXPECT_TRUE(views.take_unused().empty()) << "the newest stays";
  in_use.erase(in_use.begin());
  EXPECT_EQ(views.take_unused().size(), 1U);
  EXPECT_TRUE(views.has_room());
}

// Whichever comes first, the keys or the view.
TEST_F(Views, AllHaveTheNewestKeys) {
  KeptViews views;
  views.set_keys({{"tml-former", "carol"}, {"tml-kept", "carol"}});
  const std::vector<KeptViews::View> made = {make_view(), make_view(), make_view()};
  views.add(made[0]);
  views.add(made[1]);
  EXPECT_TRUE(made[0]->authenticate("tml-former").ok());
  EXPECT_TRUE(made[1]->authenticate("tml-former").ok());
  views.set_keys({{"tml-kept", "carol"}});
  views.add(made[2]);
  for (const KeptViews::View& view : made) {
    EXPECT_TRUE(view->authenticate("tml-kept").ok());
    EXPECT_FALSE(view->authenticate("tml-former").ok());
  }
}

TEST(RuntimeDirectory, IsPrivateShortAndRemovedAtTheEnd) {
  ::unsetenv("XDG_RUNTIME_DIR");
  const TempDir parent;
  const auto home = parent / "a_home_with_a_name_that_is_much_too_long_to_hold_the_path_of_a_unix_socket";
  std::filesystem::path path;
  {
    const auto directory = RuntimeDirectory::create(home);
    ASSERT_TRUE(directory.ok());
    path = (*directory)->path();
    struct stat info = {};
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
    EXPECT_LE(path.string().size(), 70u);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(RuntimeDirectory, RemovesOnlyDirectoriesOfDeadServers) {
  const TempDir directory;
  const std::filesystem::path& base = directory.path();
  const std::string alive = "tuft." + std::to_string(::getppid()) + ".abcdef";
  // In a container, the server that was killed had the process id of this one.
  const std::string predecessor = "tuft." + std::to_string(::getpid()) + ".abcdef";
  const std::string locked = "tuft.999999999.locked";  // of a server in another container
  for (const std::string& name : {std::string("tuft.999999999.abcdef"), alive, predecessor, locked}) {
    std::filesystem::create_directories(base / name);
  }
  std::filesystem::create_directories(base / "tuft.other");
  const int lock = lock_directory(base / locked);
  ASSERT_GE(lock, 0);
  ::setenv("XDG_RUNTIME_DIR", base.c_str(), 1);
  {
    const auto first = RuntimeDirectory::create("/nowhere");
    ASSERT_TRUE(first.ok());
    const auto second = RuntimeDirectory::create("/nowhere");
    ASSERT_TRUE(second.ok());
    EXPECT_TRUE(std::filesystem::exists((*first)->path()));
  }
  ::close(lock);
  EXPECT_FALSE(std::filesystem::exists(base / "tuft.999999999.abcdef"));
  EXPECT_FALSE(std::filesystem::exists(base / predecessor));
  EXPECT_TRUE(std::filesystem::exists(base / alive));
  EXPECT_TRUE(std::filesystem::exists(base / locked));
  EXPECT_TRUE(std::filesystem::exists(base / "tuft.other"));
}

class KeyFiles : public ::testing::Test {
 protected:
  using Look = KeyFile::Look;
  using Users = std::map<std::string, std::string>;

  KeyFiles() {
    config_.authorized_users = users({{"tml-root", "root"}});
    config_.authorized_users_file = directory_ / "users.yaml";
    write("tml-one: carol\n");
    EXPECT_EQ(*file_.read(), users({{"tml-root", "root"}, {"tml-one", "carol"}}));
  }
  // Returns the users by their keys as they are kept.
  static Users users(const Users& user_by_key) {
    Users kept;
    for (const auto& [key, user] : user_by_key) kept.emplace(config::kept_form_of_key(key), user);
    return kept;
  }
  // Overwrites the file in place.
  void write(const std::string& text) { std::ofstream(config_.authorized_users_file) << text; }

  const TempDir directory_;
  config::ServerConfig config_;
  KeyFile file_{config_};
};

TEST_F(KeyFiles, ChangeIsAcceptedWhenTheFileIsStable) {
  EXPECT_EQ(file_.look(), Look::kSame);
  write("tml-two: carol\n");
  EXPECT_EQ(file_.look(), Look::kSame);
  write("tml-two: carol\ntml-three: dan\n");
  EXPECT_EQ(file_.look(), Look::kSame);
  EXPECT_EQ(file_.look(), Look::kChanged);
  EXPECT_EQ(*file_.read(), users({{"tml-root", "root"}, {"tml-two", "carol"}, {"tml-three", "dan"}}));
  EXPECT_EQ(file_.look(), Look::kSame);
}

TEST_F(KeyFiles, IncompleteFileIsIgnoredAndReportedOnce) {
  for (const char* cut : {"tml-two: car", ""}) {
    write(cut);
    EXPECT_EQ(file_.look(), Look::kSame);
    EXPECT_EQ(file_.look(), Look::kChanged);
    EXPECT_THAT(file_.read().error().message, ::testing::HasSubstr("does not end with a newline"));
    EXPECT_EQ(file_.look(), Look::kSame);
  }
  write("# nobody\n");
  EXPECT_EQ(file_.look(), Look::kSame);
  EXPECT_EQ(file_.look(), Look::kChanged);
  EXPECT_EQ(*file_.read(), users({{"tml-root", "root"}}));
}

TEST_F(KeyFiles, RemovedFileIsGoneAtTheSecondLookAndMayReturn) {
  std::filesystem::remove(config_.authorized_users_file);
  EXPECT_FALSE(file_.read().ok());
  EXPECT_EQ(file_.look(), Look::kSame);
  EXPECT_EQ(file_.look(), Look::kGone);
  EXPECT_EQ(file_.look(), Look::kSame);
  write("tml-one: carol\n");
  EXPECT_EQ(file_.look(), Look::kSame);
  EXPECT_EQ(file_.look(), Look::kChanged);
  EXPECT_TRUE(file_.read().ok());
}

TEST_F(KeyFiles, BriefAbsenceIsIgnored) {
  std::filesystem::remove(config_.authorized_users_file);
  EXPECT_EQ(file_.look(), Look::kSame);
  write("tml-another: carol\n");
  EXPECT_EQ(file_.look(), Look::kSame);
  EXPECT_EQ(file_.look(), Look::kChanged);
}

// Its store says nothing until `answers` is ready, and then that this server leads.
class SilentLease final : public store::Lease {
 public:
  explicit SilentLease(std::future<void> answers) : answers_(std::move(answers)) {}
  Result<Standing> take(Nanos, const std::string&) override {
    answers_.wait();
    return Standing{.leads = true, .epoch = 1, .leader = {}};
  }
  Result<Renewal> renew(Nanos, const std::string&) override { return Renewal{.leads = true}; }
  Status release() override { return {}; }
  std::string fence_key() const override { return "epoch"; }

 private:
  const std::future<void> answers_;
};

TEST_F(KeyFiles, AreReadByAServerThatStandsByWhileItsStoreHangs) {
  config_.home = directory_.path();
  config_.port = 0;
  config_.checkpoint_dir = directory_ / "checkpoints";
  config_.persistence.mode = config::PersistenceMode::kFile;
  config_.persistence.file_path = directory_ / "persistence.db";
  std::promise<void> store_answers;
  store::Leadership leadership(std::make_unique<SilentLease>(store_answers.get_future()), {});
  Standby standby(config_, leadership);
  ASSERT_TRUE(standby.start("http://127.0.0.1:1").ok());
  auto leads = std::async(std::launch::async, [&] { return standby.wait(); });
  const auto accepts = [&](const std::string& key) {
    const auto client = terminal::HttpClient::create(
        {.address = {.host = "127.0.0.1", .port = standby.port(), .prefix = {}}, .key = key});
    return client.ok() && (*client)->get("/api/v1/training_runs").ok();
  };
  EXPECT_TRUE(accepts("tml-one"));
  write("tml-two: carol\n");
  const Nanos patience = system_clock().monotonic() + 20 * kSecond;
  while (!accepts("tml-two") && system_clock().monotonic() < patience) std::this_thread::yield();
  EXPECT_TRUE(accepts("tml-two"));
  EXPECT_FALSE(accepts("tml-one"));
  store_answers.set_value();
  EXPECT_TRUE(leads.get());
}

TEST(Cores, AreSharedEvenlyAndNeverNone) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_EQ(threads_per_worker(8, 2), 4);
  EXPECT_EQ(threads_per_worker(2, 3), 1);
}

TEST(WorkerCommand, ContainsTheSettingsOfTheModel) {
  config::ServerConfig config;
  config.log_level = "debug";
  config.authorized_users = {{"tml-secret", "alice"}};
  config.telemetry.headers = {{"authorization", "tml-secret"}};
  config::ModelConfig model;
  model.model_name = "org/m";
  model.model_path = "/models/m";
  model.max_model_len = 64;
  model.weights_dtype = config::WeightsDtype::kBfloat16;
  model.backend = config::BackEnd::kTorch;
  model.device = "cuda:1";
  const actor::WorkerSpec spec = worker_spec(config, model, "/bin/tuft-worker", "/run/x", 3);
  EXPECT_EQ(spec.base_model, "org/m");
  std::string line;
  for (const std::string& argument : spec.arguments) line += argument + " ";
  for (const char* part : {"--model-path /models/m ", "--model-name org/m ", "--max-model-len 64 ",
                           "--weights-dtype bf16 ", "--backend torch ", "--device cuda:1 ", "--cuda-graphs false ",
                           "--threads 3 ", "--kv-cache-bytes 0 ", "--training-share 50 ", "--log-level debug "}) {
    EXPECT_THAT(line, ::testing::HasSubstr(part));
  }
  EXPECT_THAT(line, ::testing::Not(::testing::HasSubstr("tml-secret")));
  model.threads = 1;
  EXPECT_THAT(worker_spec(config, model, "w", "/run/x", 3).arguments, ::testing::Contains("1"));
}

// Paths and threads differ between machines, so a worker that joins has its own.
TEST(WorkerCommand, AJoinedWorkerGetsWhatIsNotOfItsMachine) {
  config::ModelConfig model;
  model.model_name = "org/m";
  model.model_path = "/models/m";
  model.max_model_len = 64;
  const std::vector<std::string> flags = joined_worker_flags(model);
  for (const char* flag : {"--model-name", "--max-model-len", "--kv-cache-bytes"}) {
    EXPECT_THAT(flags, ::testing::Contains(flag));
  }
  for (const char* flag : {"--model-path", "--page-directory", "--threads", "--memory-share", "--log-level"}) {
    EXPECT_THAT(flags, ::testing::Not(::testing::Contains(flag)));
  }
  model.threads = 2;
  EXPECT_THAT(joined_worker_flags(model), ::testing::Contains("--threads"));
}

TEST(Sweeper, SweepsOnItsOwnThreadUntilItEnds) {
  std::atomic<int> sweeps = 0, elsewhere = 0;
  std::promise<void> third;
  {
    const Sweeper sweeper(
        [&, caller = std::this_thread::get_id()] {
          if (std::this_thread::get_id() != caller) ++elsewhere;
          if (++sweeps == 3) third.set_value();
        },
        kMillisecond);
    third.get_future().wait();
  }
  EXPECT_EQ(elsewhere, sweeps);
}

TEST(Sweeper, EndsInTheMiddleOfAnInterval) {
  std::promise<void> first;
  const Sweeper sweeper([&] { first.set_value(); }, 3600 * kSecond);
  first.get_future().wait();
}

}  // namespace
}  // namespace tuft::app
