// std::mutex with clang's thread-safety annotations, which libstdc++ lacks. Members name their lock with
// TUFT_GUARDED_BY; `./dev lint` compiles with -Wthread-safety and fails on an unlocked access.
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define TUFT_TSA(x) __attribute__((x))
#else
#define TUFT_TSA(x)
#endif
#define TUFT_GUARDED_BY(m) TUFT_TSA(guarded_by(m))
#define TUFT_REQUIRES(...) TUFT_TSA(requires_capability(__VA_ARGS__))
#define TUFT_EXCLUDES(...) TUFT_TSA(locks_excluded(__VA_ARGS__))

namespace tuft {

class TUFT_TSA(capability("mutex")) Mutex {
 public:
  void lock() TUFT_TSA(acquire_capability()) { mutex_.lock(); }
  void unlock() TUFT_TSA(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class TUFT_TSA(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TUFT_TSA(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() TUFT_TSA(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// A wait releases the mutex and takes it again; the caller holds it before and after.
class CondVar {
 public:
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

  void wait(Mutex& mutex) TUFT_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  template <typename TimePoint>
  std::cv_status wait_until(Mutex& mutex, const TimePoint& deadline) TUFT_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const auto status = condition_.wait_until(lock, deadline);
    lock.release();
    return status;
  }

 private:
  std::condition_variable condition_;
};

}  // namespace tuft
