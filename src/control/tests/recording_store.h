// A telemetry store that only remembers what was added to it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/background_thread.h"
#include "base/mutex.h"
#include "telemetry_store/store.h"

namespace tuft::control {

// Thread-safe. Queries find nothing.
class RecordingStore final : public telemetry_store::Store {
 public:
  struct Added {
    telemetry_store::RecordType type;
    std::string request;
    std::string worker;
    std::string owner;
  };

  // For tests: whether the queue has room for what users send, and for how long a request.
  std::atomic<bool> has_room = true;
  std::atomic<int64_t> bytes_max = 4 << 20;

  bool add(telemetry_store::RecordType type, std::string request, const telemetry_store::Source& source) override {
    if (!source.owner.empty() && !has_room) return false;
    MutexLock lock(mutex_);
    added_.push_back({type, std::move(request), source.worker, source.owner});
    changed_.notify_all();
    return true;
  }
  bool add_metrics(std::string snapshot, const telemetry_store::Source& source) override {
    if (!source.owner.empty() && !has_room) return false;
    MutexLock lock(mutex_);
    metrics_.emplace_back(source.worker, std::move(snapshot));
    changed_.notify_all();
    return true;
  }
  int64_t request_bytes_max() const override { return bytes_max; }
  void add_step(telemetry_store::RunStep step) override {
    MutexLock lock(mutex_);
    steps_.push_back(std::move(step));
    changed_.notify_all();
  }

  std::vector<Added> added() const {
    MutexLock lock(mutex_);
    return added_;
  }
  std::vector<std::string> of_worker(const std::string& worker) const {
    std::vector<std::string> requests;
    for (Added& one : added()) {
      if (one.worker == worker) requests.push_back(std::move(one.request));
    }
    return requests;
  }
  std::vector<std::pair<std::string, std::string>> metrics() const {
    MutexLock lock(mutex_);
    return metrics_;
  }
  std::vector<telemetry_store::RunStep> steps() const {
    MutexLock lock(mutex_);
    return steps_;
  }
  // Waits until `met` returns true after something was added; false after 20 s.
  bool wait_for(const std::function<bool()>& met) const {
    const auto deadline = time_point(system_clock().monotonic() + 20 * kSecond);
    while (!met()) {
      MutexLock lock(mutex_);
      // What was added between the look and the lock shows at the next addition, or after the short wait.
      const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
      changed_.wait_until(mutex_, std::min(deadline, soon));
      if (std::chrono::steady_clock::now() >= deadline) return false;
    }
    return true;
  }

  // The next call of take_refused_points() for the owner returns it.
  void refuse_points(const std::string& owner, telemetry_store::Rejections refused) {
    MutexLock lock(mutex_);
    refused_[owner] = std::move(refused);
  }
  telemetry_store::Rejections take_refused_points(const std::string& owner) override {
    MutexLock lock(mutex_);
    return std::exchange(refused_[owner], {});
  }

  bool settle(Nanos) override { return true; }
  Result<telemetry_store::TracePage> traces(const telemetry_store::Viewer&, const telemetry_store::Filter&,
                                            const telemetry_store::PageOf&) const override {
    return telemetry_store::TracePage{};
  }
  Result<telemetry_store::DurationHistogram> durations(const telemetry_store::Viewer&,
                                                       const telemetry_store::Filter&) const override {
    return telemetry_store::DurationHistogram{};
  }
  Result<telemetry_store::SpanSeries> span_series(const telemetry_store::Viewer&, const telemetry_store::Filter&,
                                                  telemetry_store::SpanFunction, std::string_view,
                                                  Nanos) const override {
    return telemetry_store::SpanSeries{};
  }
  Result<telemetry_store::Trace> trace(const telemetry_store::Viewer&, std::string_view, size_t) const override {
    return not_found("this store finds nothing");
  }
  Result<telemetry_store::LogPage> logs(const telemetry_store::Viewer&,
                                        const telemetry_store::LogQuery&) const override {
    return telemetry_store::LogPage{};
  }
  std::vector<telemetry_store::MetricInfo> metrics(const telemetry_store::Viewer&) const override { return {}; }
  Result<telemetry_store::MetricAnswer> metric(const telemetry_store::Viewer&,
                                               const telemetry_store::MetricQuery&) const override {
    return telemetry_store::MetricAnswer{};
  }
  std::vector<telemetry_store::MetricExemplar> exemplars(const telemetry_store::Viewer&,
                                                         const telemetry_store::MetricQuery&) const override {
    return {};
  }
  std::vector<telemetry_store::RunStep> steps(const telemetry_store::Viewer&, std::string_view, int64_t,
                                              size_t) const override {
    return {};
  }
  telemetry_store::StoreState state() const override { return {}; }

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::vector<Added> added_ TUFT_GUARDED_BY(mutex_);
  std::vector<std::pair<std::string, std::string>> metrics_ TUFT_GUARDED_BY(mutex_);
  std::vector<telemetry_store::RunStep> steps_ TUFT_GUARDED_BY(mutex_);
  std::map<std::string, telemetry_store::Rejections> refused_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
