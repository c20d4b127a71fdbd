// What leaves a history that is full: the oldest records of those who have most.
#include <algorithm>
#include <cstdio>
#include <limits>

#include <gmock/gmock.h>

#include "telemetry/testing/recorded_metrics.h"
#include "telemetry_store/tests/store_fixture.h"
#include "telemetry_store/thinning.h"

namespace tuft::telemetry_store {
namespace {

namespace fs = std::filesystem;
using internal::choose_leaving;
using internal::fair_share;
using internal::OwnerBytes;
using internal::Owners;
using ::testing::ElementsAre;

TEST(FairShare, GivesEveryoneTheSameOrAll) {
  constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(fair_share({}, 10), kAll);
  EXPECT_EQ(fair_share({10}, 10), kAll);
  EXPECT_EQ(fair_share({10}, 9), 9U);
  EXPECT_EQ(fair_share({1, 100, 2, 100}, 103), 50U);
  EXPECT_EQ(fair_share({100, 100, 100}, 30), 10U);
  EXPECT_EQ(fair_share({5, 5}, 0), 0U);
}

TEST(ChooseLeaving, TakesTheOldestOfThoseAboveTheirShare) {
  const std::vector<OwnerBytes> segments = {{{"alice", 50}, {"bob", 50}}, {{"alice", 100}}, {{"alice", 100}}};
  EXPECT_THAT(choose_leaving(segments, 40), ElementsAre(Owners{"alice"}, Owners{}, Owners{}));
  EXPECT_THAT(choose_leaving(segments, 120), ElementsAre(Owners{"alice"}, Owners{"alice"}, Owners{}));
  EXPECT_THAT(choose_leaving(segments, 290), ElementsAre(Owners{"alice", "bob"}, Owners{"alice"}, Owners{"alice"}));
  EXPECT_THAT(choose_leaving(segments, 0), ElementsAre(Owners{}, Owners{}, Owners{}));
}

TEST(ChooseLeaving, WritesNoSegmentAgainForLittle) {
  const std::vector<OwnerBytes> segments = {{{"alice", 20}, {"bob", 80}}, {{"alice", 300}}};
  EXPECT_THAT(choose_leaving(segments, 100), ElementsAre(Owners{}, Owners{"alice"}));
}

class Retention : public StoreOnDiskTest {
 protected:
  Retention() {
    options_.disk_bytes_max = 4 << 20;
    options_.memory_bytes_max = 2 << 20;
    options_.age_max = 24 * 3600 * kSecond;
  }

  // Adds spans of a user, each of about half a KiB, with a log record for every tenth.
  void fill(const std::string& user, uint64_t count) {
    std::vector<BuiltSpan> spans;
    std::vector<BuiltLog> logs;
    for (uint64_t n = 0; n < count; ++n) {
      const uint64_t id = ++last_id_;
      spans.push_back({.trace = id,
                       .span = id,
                       .name = "of-" + user,
                       .start = now(),
                       .attributes = {{"tuft.user", user}, {"filler", std::string(400, 'x')}}});
      if (n % 10 == 0) logs.push_back({.time = now(), .body = user, .trace = id, .attributes = {{"tuft.user", user}}});
      clock_.advance(kMillisecond);
      if (spans.size() < 200 && n + 1 < count) continue;
      add(spans);
      add(logs);
      spans.clear();
      logs.clear();
    }
  }
  size_t spans_of(const std::string& user) { return count({.user = user}, "of-" + user); }
  size_t logs_of(const std::string& user) { return bodies({.user = user}, {.page = {.limit = 1000}}).size(); }
  uint64_t disk_bytes() const {
    uint64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(options_.directory)) bytes += entry.file_size();
    return bytes;
  }

  // Returns how many records of both signals left for this reason.
  int64_t removed(const std::string& reason) const { return removed(reason, "traces") + removed(reason, "logs"); }
  int64_t removed(const std::string& reason, const std::string& signal) const {
    return metrics_.counter("tuft.telemetry_store.removed", {{"reason", reason}, {"signal", signal}});
  }
  // What came is still there or counted as removed.
  void expect_that_nothing_left_in_silence() const {
    for (const char* signal : {"traces", "logs"}) {
      int64_t gone = 0;
      for (const char* reason : {"age", "bytes", "thinning", "corrupt"}) gone += removed(reason, signal);
      const int64_t came = metrics_.counter("tuft.telemetry_store.records", {{"signal", signal}});
      const StoreState state = store_->state();
      const uint64_t there = std::string(signal) == "traces" ? state.spans : state.logs;
      EXPECT_EQ(came - gone, static_cast<int64_t>(there)) << signal;
    }
  }

  const telemetry::testing::RecordedMetrics metrics_;
  uint64_t last_id_ = 0;
};

TEST_F(Retention, WhoFloodsPushesOutItsOwnRecordsOnly) {
  fill("bob", 500);
  fill("alice", 3000);
  const uint64_t newest_of_bob = last_id_ + 1;
  fill("bob", 1);
  fill("alice", 40'000);
  EXPECT_EQ(spans_of("bob"), 501U);
  EXPECT_EQ(logs_of("bob"), 51U);
  EXPECT_LT(spans_of("alice"), 8000U);
  EXPECT_GT(spans_of("alice"), 2000U);
  EXPECT_LE(disk_bytes(), static_cast<uint64_t>(options_.disk_bytes_max) * 5 / 4);
  // What is left of alice is her newest.
  EXPECT_TRUE(store_->trace(kAlice, built_trace_id(last_id_), 10).ok());
  EXPECT_FALSE(store_->trace(kAlice, built_trace_id(600), 10).ok());
  const auto of_bob = store_->trace(kBob, built_trace_id(newest_of_bob), 10);
  ASSERT_TRUE(of_bob.ok());
  EXPECT_EQ(of_bob->spans.size(), 1U);
  EXPECT_FALSE(store_->trace(kAlice, built_trace_id(newest_of_bob), 10).ok());
  reopen();
  EXPECT_EQ(spans_of("bob"), 501U);
  EXPECT_EQ(logs_of("bob"), 51U);
}

TEST_F(Retention, WhoSendsLittleBesideAFloodKeepsAllInFewFiles) {
  for (int turn = 0; turn < 150; ++turn) {
    fill("alice", 400);
    fill("bob", 1);
  }
  EXPECT_EQ(spans_of("bob"), 150U);
  EXPECT_LT(files(".seg").size(), 64U);
  reopen();
  EXPECT_EQ(spans_of("bob"), 150U);
}

TEST_F(Retention, UsersOfTheSameSizeLoseTheirOldest) {
  for (int turn = 0; turn < 100; ++turn) {
    for (const char* user : {"alice", "bob"}) fill(user, 100);
  }
  const size_t alice = spans_of("alice"), bob = spans_of("bob");
  EXPECT_GT(alice, 1000U);
  EXPECT_LT(std::max(alice, bob) - std::min(alice, bob), 1500U);
  EXPECT_TRUE(store_->trace(kBob, built_trace_id(last_id_), 10).ok());
}

TEST_F(Retention, SmallSegmentsOfAboutTheSameAgeAreMerged) {
  for (int restart = 0; restart < 70; ++restart) {
    fill("bob", 3);
    reopen();
  }
  EXPECT_LT(files(".seg").size(), 40U);
  EXPECT_EQ(spans_of("bob"), 210U);
  // Age reaches merged segments, too.
  clock_.advance(options_.age_max + options_.age_max / 12);
  reopen();
  EXPECT_EQ(spans_of("bob"), 0U);
}

TEST_F(Retention, WhatLeavesIsCountedByReason) {
  fill("bob", 500);
  fill("alice", 30'000);
  EXPECT_GT(removed("thinning", "traces"), 10'000);
  EXPECT_GT(removed("thinning", "logs"), 1000);
  EXPECT_EQ(removed("age"), 0);
  EXPECT_EQ(removed("corrupt"), 0);
  expect_that_nothing_left_in_silence();
  clock_.advance(2 * options_.age_max);
  reopen();
  EXPECT_EQ(store_->state().spans, 0U);
  EXPECT_GT(removed("age", "traces"), 2000);
  EXPECT_EQ(removed("corrupt"), 0);
  expect_that_nothing_left_in_silence();
}

TEST_F(Retention, WhatLeavesTheMemoryIsCounted) {
  options_.directory.clear();
  reopen();
  fill("alice", 20'000);
  EXPECT_GT(removed("bytes", "traces"), 10'000);
  EXPECT_EQ(removed("thinning"), 0);
  expect_that_nothing_left_in_silence();
}

TEST_F(Retention, WhatADamagedFileCostsIsCounted) {
  fill("bob", 300);
  store_.reset();
  const fs::path segment = files(".seg").back();
  fs::resize_file(segment, fs::file_size(segment) / 2);
  reopen();
  EXPECT_GT(removed("corrupt", "traces"), 50);
  EXPECT_LT(removed("corrupt", "traces"), 300);
  expect_that_nothing_left_in_silence();
}

TEST_F(Retention, WhatAMergeCannotReadIsCounted) {
  for (int restart = 0; restart < 20; ++restart) {
    fill("bob", 3);
    reopen();
  }
  // The middle of the first record of a file: its index is whole, and nobody reads the record until the merge.
  std::string content = read_text(files(".seg").front());
  content[content.find(std::string(50, 'x'))] = 'y';
  write_text(files(".seg").front(), content);
  for (int restart = 0; restart < 40; ++restart) {
    fill("bob", 3);
    reopen();
  }
  EXPECT_EQ(removed("corrupt", "traces"), 1);
  expect_that_nothing_left_in_silence();
}

TEST_F(Retention, AFileThatCannotBeLookedAtEndsNothing) {
  // One file less than are merged.
  for (int restart = 0; restart < 31; ++restart) {
    fill("bob", 3);
    reopen();
  }
  ASSERT_EQ(files(".seg").size(), 31U);
  // What has the name of the merged segment leads to itself, which is an error for root, too.
  char name[32];
  std::snprintf(name, sizeof name, "%020llu.seg", std::stoull(files(".seg").front().stem()) + 1);
  fs::create_symlink(name, options_.directory / name);
  fill("bob", 3);
  reopen();
  EXPECT_EQ(spans_of("bob"), 96U);
}

TEST_F(Retention, ASegmentAndItsReplacementAreNotBothKept) {
  fill("bob", 300);
  reopen();
  const auto copy = [&](const char* ending, uint64_t by) {
    for (const auto& entry : fs::directory_iterator(options_.directory)) {
      if (entry.path().extension() != ending || fs::file_size(entry.path()) == 0) continue;
      char name[32];
      std::snprintf(name, sizeof name, "%020llu%s", std::stoull(entry.path().stem()) + by, ending);
      fs::copy_file(entry.path(), options_.directory / name);
      return;
    }
  };
  // Killed before the old files were removed, and before the index of the new one was written.
  store_.reset();
  copy(".seg", 1);
  reopen();
  EXPECT_EQ(spans_of("bob"), 300U);
  store_.reset();
  copy(".seg", 1);
  copy(".idx", 1);
  reopen();
  EXPECT_EQ(spans_of("bob"), 300U);
}

}  // namespace
}  // namespace tuft::telemetry_store
