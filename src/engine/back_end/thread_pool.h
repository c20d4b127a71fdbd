// The threads that compute: all of the native back end's, and those that draw tokens from logits for any back end.
// Workers spin for a moment after a job, because the next one usually comes within
// microseconds, and then sleep, so that an idle engine costs nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/mutex.h"

namespace tuft::engine {

// A borrowed callable void(int task, int thread). The callable must outlive it.
class TaskRef {
 public:
  template <typename F, typename = std::enable_if_t<!std::is_same_v<std::decay_t<F>, TaskRef>>>
  TaskRef(F& function)  // NOLINT(google-explicit-constructor)
      : object_(const_cast<void*>(static_cast<const void*>(&function))),
        call_([](void* object, int task, int thread) { (*static_cast<F*>(object))(task, thread); }) {}
  TaskRef() = default;

  void operator()(int task, int thread) const { call_(object_, task, thread); }

 private:
  void* object_ = nullptr;
  void (*call_)(void*, int, int) = nullptr;
};

class ThreadPool {
 public:
  // `threads` includes the caller of run(); 0: one per core that this process may run on.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls function(task, thread) once for every task in [0, tasks) and returns when all are done. `thread` is in
  // [0, threads()) and differs for tasks that run at the same time. Tasks must not throw. One caller at a time.
  void run(int tasks, TaskRef function);

 private:
  void run_job(int tasks, TaskRef function);
  void work(int thread);
  // Runs tasks of the job in `ticket` until none is left.
  void drain(uint64_t ticket, int thread);
  void sleep();

  // generation << 40 | tasks handed out << 20 | tasks. It is one word, so that a late worker can never take a task of
  // another job than the one it read.
  std::atomic<uint64_t> ticket_{0};
  std::atomic<int> done_{0};
  std::atomic<int> sleepers_{0};
  TaskRef function_;  // written before ticket_, read by threads that took a task

  std::atomic<bool> stop_{false};
  Mutex mutex_;  // for sleeping and waking only
  CondVar wake_;
  std::vector<std::thread> workers_;
};

}  // namespace tuft::engine
