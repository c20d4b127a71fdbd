// One thread that does all work with files, so that no request and no actor thread waits for a disk.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

#include "base/result.h"
#include "control/queues/tenant_queue.h"
#include "control/types/errors.h"

namespace tuft::control {

// Tasks run one at a time: those of one user in the order of arrival, and users take turns by the cost of their tasks.
// The server's own tasks belong to a user with an empty name.
class DiskWorker {
 public:
  using Task = std::function<void()>;
  // Of tasks that cost 1.
  static constexpr int64_t kTasksMax = 4'096;
  static constexpr int64_t kTasksPerUserMax = 256;

  explicit DiskWorker(int64_t tasks_per_user_max = kTasksPerUserMax, int64_t tasks_max = kTasksMax)
      : tasks_({.quantum = 1, .user_max = tasks_per_user_max, .all_max = tasks_max}), thread_([this] { run(); }) {}
  ~DiskWorker() { stop(); }
  DiskWorker(const DiskWorker&) = delete;
  DiskWorker& operator=(const DiskWorker&) = delete;

  // Runs the queued tasks, then ends the thread. Must not be called from a task, nor from two threads.
  void stop() {
    tasks_.close();
    if (thread_.joinable()) thread_.join();
  }

  // Queues a task. With an error the task never runs: kResourceExhausted if too many of the user's tasks wait, else
  // kUnavailable. `cost`: at least 1; more for what a short request can make much longer than usual. Thread-safe.
  Status post(const UserId& user, Task task, int64_t cost = 1) {
    switch (tasks_.try_push(user, cost, std::move(task))) {
      case TenantQueue<Task>::Push::kTaken:
        return {};
      case TenantQueue<Task>::Push::kUserFull:
        return Error{ErrorCode::kResourceExhausted,
                     "too many of your requests wait for the server's disk; send this one again when some are answered",
                     "disk_queue"};
      case TenantQueue<Task>::Push::kFull:
        return unavailable("too much work waits for the server's disk; try again", "disk_queue");
      case TenantQueue<Task>::Push::kClosed:
        break;
    }
    return shutting_down();
  }
  // Queues a task that continues an accepted one, so no limit applies. Returns false after stop(). Thread-safe.
  bool post_rest(const UserId& user, Task task) { return tasks_.push(user, 1, std::move(task)); }

 private:
  void run() {
    while (auto task = tasks_.pop()) (*task)();
  }

  TenantQueue<Task> tasks_;
  std::thread thread_;
};

}  // namespace tuft::control
