// One thread that works with checkpoint files, so that no request and no actor thread waits for a disk.
#pragma once

#include <functional>
#include <thread>
#include <utility>

#include "base/bounded_queue.h"

namespace tuft::control {

// Tasks run one after the other in the order of post().
class DiskWorker {
 public:
  explicit DiskWorker(size_t capacity = 4096) : tasks_(capacity), thread_([this] { run(); }) {}
  ~DiskWorker() { stop(); }
  DiskWorker(const DiskWorker&) = delete;
  DiskWorker& operator=(const DiskWorker&) = delete;

  // Runs what is queued, then ends the thread. Not from a task, and from one thread only.
  void stop() {
    tasks_.close();
    if (thread_.joinable()) thread_.join();
  }

  // False, with the task not run, when the queue is full or closed. Thread-safe.
  bool post(std::function<void()> task) { return tasks_.try_push(std::move(task)); }

 private:
  void run() {
    while (auto task = tasks_.pop()) (*task)();
  }

  BoundedQueue<std::function<void()>> tasks_;
  std::thread thread_;
};

}  // namespace tuft::control
