// What survives restarts, kills, damaged files and full disks.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <set>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>

#include "telemetry/testing/recorded_metrics.h"
#include "telemetry_store/tests/store_fixture.h"

namespace tuft::telemetry_store {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <typename Condition>
bool wait_for(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

class Durability : public StoreOnDiskTest {
 protected:
  Durability() {
    options_.disk_bytes_max = 8 << 20;
    options_.memory_bytes_max = 2 << 20;
  }

  // Spans of alice and bob in turns, a log record for each, in several segments.
  void fill(uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; i += 20) {
      std::vector<BuiltSpan> spans;
      std::vector<BuiltLog> logs;
      for (uint64_t n = i; n < i + 20; ++n) {
        const std::string user = n % 2 == 0 ? "alice" : "bob";
        spans.push_back({.trace = n,
                         .span = n,
                         .name = "of-" + user,
                         .start = now() + static_cast<Nanos>(n),
                         .attributes = {{"tuft.user", user}, {"filler", std::string(200, 'x')}}});
        logs.push_back({.time = now() + static_cast<Nanos>(n),
                        .body = "of-" + user,
                        .trace = n,
                        .attributes = {{"tuft.user", user}}});
      }
      add(spans);
      add(logs);
    }
  }
  // Asks everything once: nothing may crash, and nobody may see another user's records.
  void ask_everything() {
    for (const Viewer& viewer : {kOperator, kAlice}) {
      const auto page = store_->traces(viewer, {}, {.limit = 50});
      if (page.ok()) {
        for (const TraceSummary& trace : page->traces) {
          EXPECT_TRUE(viewer.all || trace.owner == "alice");
        }
      }
      const auto found = store_->traces(viewer, {.text = "of-"}, {.limit = 5});
      if (found.ok()) {
        for (const TraceSummary& trace : found->traces) {
          const auto one = store_->trace(viewer, trace.trace_id, 100);
          if (!one.ok() || viewer.all) continue;
          for (const Span& span : one->spans) EXPECT_EQ(span.owner, "alice");
        }
      }
      const auto logs = store_->logs(viewer, {.filter = {.text = "of"}});
      if (logs.ok() && !viewer.all) {
        for (const LogRecord& log : logs->logs) EXPECT_EQ(log.body, "of-alice");
      }
      (void)store_
          ->span_series(viewer, {.time = {.from = now() - kSecond}, .name = "*"}, SpanFunction::kP95, "user", kSecond)
          .ok();
      (void)store_->metrics(viewer);
      (void)store_->steps(viewer, "run", 0, 10);
    }
    (void)store_->state();
  }
};

TEST_F(Durability, ARestartKeepsEverything) {
  fill(1, 2000);
  store_->add_step({.run = "run", .owner = "alice", .step = 1, .time = now(), .loss = 2.5, .tokens = 7});
  store_->add_metrics(build_metrics({{.name = "g", .value = 4}}), {});
  ASSERT_TRUE(store_->settle(10 * kSecond));
  const StoreState before = store_->state();
  EXPECT_GT(files(".idx").size(), 2U);
  reopen();
  const StoreState after = store_->state();
  EXPECT_TRUE(after.on_disk);
  EXPECT_EQ(after.problem, "");
  EXPECT_EQ(after.spans, before.spans);
  EXPECT_EQ(after.logs, before.logs);
  EXPECT_EQ(count(kAlice, "of-alice"), 1000U);
  EXPECT_EQ(count(kAlice, "of-bob"), 0U);
  EXPECT_EQ(trace_ids(kBob, {.name = "of-bob"}, 1000).size(), 1000U);
  const std::vector<RunStep> steps = store_->steps(kAlice, "run", 0, 10);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].loss, 2.5);
  EXPECT_EQ(steps[0].tokens, 7);
  fill(3001, 20);
  EXPECT_EQ(count(kAlice, "of-alice"), 1010U);
}

TEST_F(Durability, AMetricKeepsItsMinutes) {
  for (int i = 0; i < 30; ++i) {
    clock_.advance(10 * kSecond);
    add({{.name = "g", .value = static_cast<double>(i)},
         {.name = "c", .kind = BuiltMetric::Kind::kCounter, .value = 6.0 * i},
         {.name = "h",
          .kind = BuiltMetric::Kind::kHistogram,
          .value = 1.0 * i,
          .bounds = {1, 2},
          .counts = {static_cast<uint64_t>(i), 0, 0}}});
  }
  const Nanos minute = 60 * kSecond;
  // The newest minute is kept a little later than it ends.
  const Nanos until = now() - now() % minute - minute;
  reopen();
  const auto rate = store_->metric(kOperator, {.name = "c",
                                               .function = MetricFunction::kRate,
                                               .time = {.from = until - minute, .until = until},
                                               .step = minute});
  ASSERT_TRUE(rate.ok()) << rate.error().message;
  EXPECT_NEAR(rate->series.at(0).points.at(0), 0.6, 0.01);
  const auto quantile = store_->metric(kOperator, {.name = "h",
                                                   .function = MetricFunction::kP50,
                                                   .time = {.from = until - minute, .until = until},
                                                   .step = minute});
  EXPECT_NEAR(quantile->series.at(0).points.at(0), 0.5, 0.01);
  const auto gauge = store_->metric(kOperator, {.name = "g",
                                                .function = MetricFunction::kMax,
                                                .time = {.from = until - minute, .until = until},
                                                .step = minute});
  EXPECT_GT(gauge->series.at(0).points.at(0), 10);
}

TEST_F(Durability, IndexesAreRebuilt) {
  fill(1, 2000);
  store_.reset();
  for (const fs::path& path : files(".idx")) fs::remove(path);
  reopen();
  EXPECT_TRUE(wait_for([&] { return count(kAlice, "of-alice") == 1000; }));
  EXPECT_EQ(count(kBob, "of-bob"), 1000U);
  EXPECT_TRUE(wait_for([&] { return files(".idx").size() == files(".seg").size(); }));
}

TEST_F(Durability, ATornTailCostsOnlyItself) {
  fill(1, 20);
  store_.reset();
  const fs::path segment = files(".seg").back();
  fs::remove(files(".idx").back());
  fs::resize_file(segment, fs::file_size(segment) - 10);
  reopen();
  EXPECT_EQ(count(kOperator, "of-*"), 20U);
  EXPECT_EQ(store_->state().logs, 19U);
}

// Truncates and overwrites each file at many places.
TEST_F(Durability, DamagedFilesCostHistoryOnly) {
  fill(1, 400);
  store_->add_step({.run = "run", .owner = "alice", .step = 1, .time = now()});
  store_.reset();
  write_text(options_.directory / "metrics-1", "no metrics");
  const fs::path kept = directory_ / "kept";
  fs::copy(options_.directory, kept);
  for (const auto& entry : fs::directory_iterator(kept)) {
    const std::string name = entry.path().filename().string();
    const auto size = static_cast<size_t>(fs::file_size(entry.path()));
    for (size_t part = 0; part < 24; ++part) {
      for (const bool cut : {true, false}) {
        store_.reset();
        fs::remove_all(options_.directory);
        fs::copy(kept, options_.directory);
        const size_t at = size * part / 24;
        if (cut) {
          fs::resize_file(options_.directory / name, at);
        } else {
          std::string content = read_text(options_.directory / name);
          for (size_t i = at; i < std::min(size, at + 64); ++i) content[i] = static_cast<char>(~content[i]);
          write_text(options_.directory / name, content);
        }
        reopen();
        ask_everything();
        // What is damaged is found when it is read, and read again from the records.
        fill(9001, 20);
        EXPECT_GE(count(kAlice, "of-alice"), 10U) << name << " at " << at;
      }
    }
  }
}

TEST_F(Durability, DropsTheOldestAboveTheLimitOfBytes) {
  options_.disk_bytes_max = 2 << 20;
  reopen();
  fill(1, 8000);
  ASSERT_TRUE(wait_for([&] { return store_->state().disk_bytes <= 2U << 20; }));
  EXPECT_EQ(store_->state().problem, "");
  EXPECT_TRUE(store_->trace(kOperator, built_trace_id(8000), 10).ok());
  EXPECT_FALSE(store_->trace(kOperator, built_trace_id(1), 10).ok());
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(options_.directory)) bytes += fs::file_size(entry);
  EXPECT_LE(bytes, 2U << 20);
}

TEST_F(Durability, DropsWhatIsTooOld) {
  options_.age_max = 3600 * kSecond;
  reopen();
  fill(1, 20);
  clock_.advance(1800 * kSecond);
  ASSERT_TRUE(wait_for([&] { return !files(".idx").empty(); }));
  fill(101, 20);
  clock_.advance(1900 * kSecond);
  ASSERT_TRUE(wait_for([&] { return store_->state().spans == 20; }));
  EXPECT_FALSE(store_->trace(kOperator, built_trace_id(1), 10).ok());
  EXPECT_TRUE(store_->trace(kOperator, built_trace_id(101), 10).ok());
}

TEST_F(Durability, MemoryIsLimitedWithoutADirectory) {
  options_.directory.clear();
  options_.memory_bytes_max = 1 << 20;
  reopen();
  fill(1, 8000);
  EXPECT_LE(store_->state().memory_bytes, 2U << 20);
  EXPECT_FALSE(store_->state().on_disk);
  EXPECT_EQ(store_->state().problem, "");
  EXPECT_TRUE(store_->trace(kOperator, built_trace_id(8000), 10).ok());
  EXPECT_FALSE(store_->trace(kOperator, built_trace_id(1), 10).ok());
}

TEST_F(Durability, ADirectoryThatCannotBeUsedLeavesAStoreInMemory) {
  const std::unique_ptr<Store> second = Store::open(options_, clock_);
  EXPECT_FALSE(second->state().on_disk);
  EXPECT_THAT(second->state().problem, HasSubstr("another server"));
  options_.directory = directory_ / "file" / "telemetry";
  write_text(directory_ / "file", "not a directory");
  reopen();
  EXPECT_FALSE(store_->state().on_disk);
  EXPECT_NE(store_->state().problem, "");
  fill(1, 20);
  EXPECT_EQ(count(kAlice, "of-alice"), 10U);
}

// The limit of a file's size stands for a full disk: write() fails.
class FullDisk {
 public:
  FullDisk() {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit full{16384, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &full);
  }
  ~FullDisk() { end(); }
  void end() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(Durability, AFullDiskCostsHistoryAndIsLeftBehind) {
  options_.memory_bytes_max = 8 << 20;
  reopen();
  FullDisk full;
  fill(1, 1000);
  ASSERT_TRUE(wait_for([&] { return !store_->state().on_disk; }));
  EXPECT_NE(store_->state().problem, "");
  EXPECT_EQ(count(kAlice, "of-alice"), 500U);
  ask_everything();
  full.end();
  clock_.advance(11 * kSecond);
  ASSERT_TRUE(wait_for([&] { return store_->state().on_disk; }));
  EXPECT_EQ(store_->state().problem, "");
  reopen();
  EXPECT_EQ(count(kAlice, "of-alice"), 500U);
}

TEST_F(Durability, WhatNeitherTheDiskNorTheMemoryHoldsIsCountedAsDropped) {
  options_.memory_bytes_max = 1 << 20;
  reopen();
  const telemetry::testing::RecordedMetrics metrics;
  const FullDisk full;
  fill(1, 8000);
  ASSERT_TRUE(wait_for([&] { return store_->state().dropped_records > 0; }));
  const StoreState state = store_->state();
  EXPECT_EQ(metrics.counter("tuft.telemetry_store.dropped", {{"reason", "disk"}}),
            static_cast<int64_t>(state.dropped_records));
  EXPECT_EQ(state.spans + state.logs + state.dropped_records, 16'000U);
}

TEST(DurabilityAfterKill, LosesAtMostTheLastSecond) {
  const TempDir directory;
  int pipe_ends[2] = {};
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto store = Store::open({.directory = directory / "telemetry"}, system_clock());
    for (uint64_t i = 1;; ++i) {
      const Nanos now = system_clock().wall();
      store->add(RecordType::kSpans, build_spans({{.trace = i, .span = i, .start = now}}), {});
      const std::pair<uint64_t, Nanos> note{i, system_clock().monotonic()};
      if (::write(pipe_ends[1], &note, sizeof note) != sizeof note) ::_exit(1);
      store->settle(kSecond);
    }
  }
  std::vector<std::pair<uint64_t, Nanos>> notes;
  std::pair<uint64_t, Nanos> note;
  while (::read(pipe_ends[0], &note, sizeof note) == sizeof note) {
    notes.push_back(note);
    if (note.second - notes.front().second > 2200 * kMillisecond) break;
  }
  ::kill(child, SIGKILL);
  const Nanos killed = system_clock().monotonic();
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
  ASSERT_FALSE(notes.empty());
  const auto store = Store::open({.directory = directory / "telemetry"}, system_clock());
  size_t checked = 0;
  for (size_t i = 0; i < notes.size(); i += 97) {
    if (notes[i].second > killed - kSecond) break;
    EXPECT_TRUE(store->trace({.all = true}, built_trace_id(notes[i].first), 1).ok()) << notes[i].first;
    ++checked;
  }
  EXPECT_GT(checked, 0U);
}

}  // namespace
}  // namespace tuft::telemetry_store
