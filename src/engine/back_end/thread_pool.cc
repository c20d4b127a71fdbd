#include "engine/back_end/thread_pool.h"

#include <algorithm>
#include <sched.h>

#include "base/check.h"
#include "base/host.h"

namespace tuft::engine {
namespace {

constexpr uint64_t kCountMask = (uint64_t{1} << 20) - 1;
constexpr int kTasksMax = static_cast<int>(kCountMask);  // of one job
constexpr int kSpinsBeforeSleep = 20'000;
constexpr int kSpinsBeforeYield = 2'000;

int ticket_tasks(uint64_t ticket) {
  return static_cast<int>(ticket & kCountMask);
}
int ticket_next(uint64_t ticket) {
  return static_cast<int>((ticket >> 20) & kCountMask);
}
bool has_task(uint64_t ticket) {
  return ticket_next(ticket) < ticket_tasks(ticket);
}

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  const int count = threads > 0 ? threads : usable_cores();
  for (int i = 1; i < count; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

// The attention of a pass over 100,000 tokens has more tasks than a ticket counts, if the model has 64 heads.
void ThreadPool::run(int tasks, TaskRef function) {
  if (tasks <= kTasksMax) return run_job(tasks, function);
  for (int first = 0, left = tasks; left > 0;) {
    const int count = std::min(left, kTasksMax);
    const auto some = [&](int task, int thread) { function(first + task, thread); };
    run_job(count, some);
    first += count;
    left -= count;
  }
}

void ThreadPool::run_job(int tasks, TaskRef function) {
  TUFT_CHECK(tasks >= 0 && tasks <= kTasksMax, "a ticket counts the tasks of a job");
  if (tasks <= 1 || workers_.empty()) {
    for (int task = 0; task < tasks; ++task) function(task, 0);
    return;
  }
  function_ = function;
  done_.store(0, std::memory_order_relaxed);
  const uint64_t generation = (ticket_.load(std::memory_order_relaxed) >> 40) + 1;
  const uint64_t ticket = (generation << 40) | static_cast<uint64_t>(tasks);
  ticket_.store(ticket);
  if (sleepers_.load() > 0) {
    MutexLock lock(mutex_);
    wake_.notify_all();
  }
  drain(ticket, 0);
  for (int spins = 0; done_.load(std::memory_order_acquire) != tasks; ++spins) {
    if (spins < kSpinsBeforeYield) {
      pause();
    } else {
      sched_yield();
    }
  }
}

void ThreadPool::drain(uint64_t ticket, int thread) {
  const uint64_t generation = ticket >> 40;
  while ((ticket >> 40) == generation && has_task(ticket)) {
    if (!ticket_.compare_exchange_weak(ticket, ticket + (uint64_t{1} << 20), std::memory_order_acq_rel)) continue;
    function_(ticket_next(ticket), thread);
    done_.fetch_add(1, std::memory_order_acq_rel);
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::work(int thread) {
  int idle = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const uint64_t ticket = ticket_.load(std::memory_order_acquire);
    if (has_task(ticket)) {
      drain(ticket, thread);
      idle = 0;
    } else if (++idle < kSpinsBeforeSleep) {
      pause();
    } else {
      sleep();
      idle = 0;
    }
  }
}

void ThreadPool::sleep() {
  MutexLock lock(mutex_);
  // sleepers_ is raised before the last check, because run() stores the job first and then looks for sleepers.
  ++sleepers_;
  while (!stop_ && !has_task(ticket_.load())) wake_.wait(mutex_);
  --sleepers_;
}

}  // namespace tuft::engine
