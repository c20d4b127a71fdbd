// FileQueue: what waits for the thread that reads and writes files. Tenants take turns, one job each; the jobs of one
// tenant keep their order. So a save waits for one job of each other tenant, and not for the hundreds of one.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "worker/adapter_pager.h"
#include "worker/operation.h"

namespace tuft::worker {

// Either an operation or a page.
struct FileJob {
  std::string queue;  // of the operation
  Operation* operation = nullptr;
  std::unique_ptr<PageJob> page;
};

// Thread-safe.
class FileQueue {
 public:
  explicit FileQueue(size_t capacity) : capacity_(capacity) {}

  // Returns false, and leaves the job unchanged, if the queue is full or closed.
  bool try_push(const std::string& tenant, FileJob&& job) TUFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      if (closed_ || size_ >= capacity_) return false;
      std::deque<FileJob>& jobs = jobs_[tenant];
      if (jobs.empty()) turns_.push_back(tenant);
      jobs.push_back(std::move(job));
      ++size_;
    }
    ready_.notify_one();
    return true;
  }

  // Waits for a job. Returns nothing when the queue is closed and empty.
  std::optional<FileJob> pop() TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (turns_.empty() && !closed_) ready_.wait(mutex_);
    if (turns_.empty()) return std::nullopt;
    const auto found = jobs_.find(turns_.front());
    turns_.pop_front();
    std::optional<FileJob> job(std::move(found->second.front()));
    found->second.pop_front();
    --size_;
    if (found->second.empty()) {
      jobs_.erase(found);
    } else {
      turns_.push_back(found->first);
    }
    return job;
  }

  // Refuses further jobs and wakes the waiter. Queued jobs can still be popped.
  void close() TUFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  size_t size() const TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return size_;
  }

 private:
  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar ready_;
  std::map<std::string, std::deque<FileJob>> jobs_ TUFT_GUARDED_BY(mutex_);  // by tenant; none is empty
  std::deque<std::string> turns_ TUFT_GUARDED_BY(mutex_);                    // tenants with jobs; the first is next
  size_t size_ TUFT_GUARDED_BY(mutex_) = 0;
  bool closed_ TUFT_GUARDED_BY(mutex_) = false;
};

}  // namespace tuft::worker
