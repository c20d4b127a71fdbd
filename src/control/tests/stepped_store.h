// A store without a thread: a test decides when a request is done, and when its caller is told. So a test can put
// anything between the two, as the thread of a real store does by chance.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "store/key_value.h"

namespace tuft::control {

// Thread-safe. Entries never expire.
class SteppedStore final : public store::KeyValue {
 public:
  using Contents = std::map<std::string, std::string>;

  explicit SteppedStore(std::shared_ptr<Contents> contents) : contents_(std::move(contents)) {}
  ~SteppedStore() override { SteppedStore::close(0); }

  // Until the first call, requests are done and answered at once, as the start of a server needs it.
  void begin_steps() { stepped_ = true; }
  // Does the oldest request that is not done. Returns false if there is none.
  bool run_next() {
    MutexLock lock(mutex_);
    if (waiting_.empty()) return false;
    done_.push_back(waiting_.front()());
    waiting_.pop_front();
    return true;
  }
  // Answers the oldest request that is done.
  bool answer_next() {
    std::function<void()> answer;
    {
      MutexLock lock(mutex_);
      if (done_.empty()) return false;
      answer = std::move(done_.front());
      done_.pop_front();
    }
    answer();
    return true;
  }
  // While false, every request fails with store_unreachable.
  void set_reachable(bool reachable) {
    MutexLock lock(mutex_);
    reachable_ = reachable;
  }
  // A thread does and answers everything from now on, for the end of the server.
  void run_on_thread() {
    set_reachable(true);
    thread_ = std::thread([this] {
      while (!closed()) {
        run_next();
        if (!answer_next()) std::this_thread::yield();
      }
    });
  }

  Status write(store::Write write, WriteDone done) override {
    return add<Status>(
        [this, write = std::move(write)]() -> Status {
          for (const store::Change& change : write.changes) {
            if (change.value) {
              (*contents_)[change.key] = *change.value;
            } else {
              contents_->erase(change.key);
            }
          }
          return {};
        },
        std::move(done));
  }
  Status get(std::string key, const telemetry::SpanContext&, GetDone done) override {
    return add<Result<std::optional<std::string>>>(
        [this, key = std::move(key)]() -> Result<std::optional<std::string>> {
          const auto found = contents_->find(key);
          if (found == contents_->end()) return std::optional<std::string>();
          return std::optional<std::string>(found->second);
        },
        std::move(done));
  }
  Status scan(store::Prefixes prefixes, const telemetry::SpanContext&, ScanDone done) override {
    std::sort(prefixes.begin(), prefixes.end());
    return scan(prefixes, true, std::move(done));
  }
  Status scan_keys(std::string prefix, const telemetry::SpanContext&, ScanDone done) override {
    return scan(store::Prefixes{std::move(prefix)}, false, std::move(done));
  }
  Status health() const override {
    MutexLock lock(mutex_);
    return reachable_ ? Status() : Status(unreachable());
  }
  const std::string& name() const override { return name_; }
  void close(Nanos) override {
    {
      MutexLock lock(mutex_);
      if (std::exchange(closed_, true)) return;
    }
    if (thread_.joinable()) thread_.join();
    while (run_next()) {
    }
    while (answer_next()) {
    }
  }

 private:
  static Error unreachable() { return unavailable("the store does not answer", "store_unreachable"); }
  bool closed() const {
    MutexLock lock(mutex_);
    return closed_;
  }

  Status scan(const store::Prefixes& prefixes, bool with_values, ScanDone done) {
    return add<Result<std::vector<store::Entry>>>(
        [this, prefixes, with_values]() -> Result<std::vector<store::Entry>> {
          std::vector<store::Entry> found;
          for (const std::string& prefix : prefixes) {
            for (auto at = contents_->lower_bound(prefix); at != contents_->end() && at->first.starts_with(prefix);
                 ++at) {
              found.push_back({at->first, with_values ? at->second : ""});
            }
          }
          return found;
        },
        std::move(done));
  }

  template <typename Answer, typename Work, typename Done>
  Status add(Work work, Done done) {
    // Does the request, and returns what tells its caller.
    const auto request = [this, work = std::move(work), done = std::move(done)]() -> std::function<void()> {
      auto answer = std::make_shared<Answer>(reachable_ ? Answer(work()) : Answer(unreachable()));
      return [answer, done] { done(std::move(*answer)); };
    };
    if (!stepped_) {
      request()();
      return {};
    }
    MutexLock lock(mutex_);
    if (closed_) return unavailable("the store is closed", "store_closed");
    waiting_.push_back(request);
    return {};
  }

  const std::string name_ = "stepped";
  const std::shared_ptr<Contents> contents_;
  bool stepped_ = false;
  mutable Mutex mutex_;
  bool reachable_ = true;
  bool closed_ = false;
  std::deque<std::function<std::function<void()>()>> waiting_;
  std::deque<std::function<void()>> done_;
  std::thread thread_;
};

}  // namespace tuft::control
