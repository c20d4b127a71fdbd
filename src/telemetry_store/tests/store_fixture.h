// A store for tests, with a clock that only the test moves.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "telemetry_store/store.h"
#include "telemetry_store/testing/otlp_builder.h"

namespace tuft::telemetry_store {

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override { reopen(); }

  // Ends the store and starts it again with the options.
  void reopen() {
    store_.reset();
    store_ = Store::open(options_, clock_);
  }
  Nanos now() const { return clock_.wall(); }

  void add(const std::vector<BuiltSpan>& spans, const Source& source = {}) {
    store_->add(RecordType::kSpans, build_spans(spans), source);
    ASSERT_TRUE(store_->settle(10 * kSecond));
  }
  void add(const std::vector<BuiltLog>& logs, const Source& source = {}) {
    store_->add(RecordType::kLogs, build_logs(logs), source);
    ASSERT_TRUE(store_->settle(10 * kSecond));
  }
  void add(const std::vector<BuiltMetric>& metrics, const Source& source = {}) {
    store_->add_metrics(build_metrics(metrics), source);
    ASSERT_TRUE(store_->settle(10 * kSecond));
  }

  std::vector<std::string> trace_ids(const Viewer& viewer, const Filter& filter, size_t limit = 100) {
    std::vector<std::string> ids;
    const auto page = store_->traces(viewer, filter, {.limit = limit});
    EXPECT_TRUE(page.ok());
    if (page.ok()) {
      for (const TraceSummary& trace : page->traces) ids.push_back(trace.trace_id);
    }
    return ids;
  }
  // Returns how many spans of this name the viewer sees.
  size_t count(const Viewer& viewer, const std::string& name) {
    const auto durations = store_->durations(viewer, {.name = name});
    EXPECT_TRUE(durations.ok());
    size_t all = 0;
    for (const uint64_t one : durations->counts) all += one;
    return all;
  }
  std::vector<std::string> bodies(const Viewer& viewer, const LogQuery& query) {
    std::vector<std::string> found;
    const auto page = store_->logs(viewer, query);
    EXPECT_TRUE(page.ok());
    if (page.ok()) {
      for (const LogRecord& log : page->logs) found.push_back(log.body);
    }
    return found;
  }

  static inline const Viewer kOperator{.all = true};
  static inline const Viewer kAlice{.user = "alice"};
  static inline const Viewer kBob{.user = "bob"};

  FakeClock clock_;
  StoreOptions options_;
  std::unique_ptr<Store> store_;
};

class StoreOnDiskTest : public StoreTest {
 protected:
  StoreOnDiskTest() { options_.directory = directory_ / "telemetry"; }
  ~StoreOnDiskTest() override { store_.reset(); }  // before its directory

  // Returns the files of the store with this ending, in the order of their names.
  std::vector<std::filesystem::path> files(std::string_view ending) const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(options_.directory)) {
      if (entry.path().filename().string().ends_with(ending)) found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  TempDir directory_;
};

}  // namespace tuft::telemetry_store
