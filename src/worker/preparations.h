// Preparations: the thread that prepares requests whose preparation takes long, before they go to the engine loop. Such
// are those with a custom loss, whose graph is read and planned for the shapes of each datum. gRPC's threads would make
// the calls of all tenants wait meanwhile. Tenants take turns, one request each.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "worker/turn_queue.h"

namespace tuft::worker {

// Thread-safe, except stop() and destruction, which belong to the owner.
class Preparations {
 public:
  // Prepares one request and passes it on. `stopping`: the request is only to be refused. Must not throw.
  using Task = std::function<void(bool stopping)>;
  static constexpr size_t kTasksMax = 4096;

  explicit Preparations(size_t tasks_max = kTasksMax) : tasks_(tasks_max), thread_([this] { run(); }) {}
  ~Preparations() { stop(); }
  Preparations(const Preparations&) = delete;
  Preparations& operator=(const Preparations&) = delete;

  // Returns false if too many tasks wait, after stop(), or without memory; then `task` is never called.
  bool post(const std::string& tenant, Task task) { return tasks_.try_push(tenant, std::move(task)); }

  // Refuses further tasks, calls the waiting ones with `stopping`, and ends the thread. Idempotent.
  void stop() {
    stopping_ = true;
    tasks_.close();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    while (auto task = tasks_.pop()) (*task)(stopping_);
  }

  TurnQueue<Task> tasks_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace tuft::worker
