// A store in memory for tests, with fault injection.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "store/key_value.h"
#include "store/threaded_store.h"

namespace tuft::store {

// The contents of a memory store. Consecutive stores may share it, to test restarts of a server. Thread-safe.
class MemoryContents {
 public:
  struct Value {
    std::string bytes;
    std::optional<Nanos> expires;  // monotonic
  };

  std::map<std::string, std::string> copy() const;
  void erase(const std::string& key);
  void put(const std::string& key, std::string value);

  // While false, every operation fails with store_unreachable.
  void set_reachable(bool reachable) { reachable_ = reachable; }
  // While false, writes fail with store_readonly; other operations succeed.
  void set_writable(bool writable) { writable_ = writable; }
  // While the values take so many bytes or more, writes that put something fail with kOutOfMemory.
  void set_bytes_max(size_t bytes) { bytes_max_ = bytes; }
  // While true, the store's thread waits before it answers.
  void hold(bool hold);
  // Returns how many operations wait because of hold().
  size_t waiting() const;

 private:
  friend class MemoryBackend;
  Status admit(const std::atomic<bool>& interrupted);
  void interrupt(std::atomic<bool>& interrupted);
  bool has_room_locked(const Write& write) const TUFT_REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar released_;
  bool held_ TUFT_GUARDED_BY(mutex_) = false;
  size_t waiting_ TUFT_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Value> values_ TUFT_GUARDED_BY(mutex_);
  std::atomic<bool> reachable_{true};
  std::atomic<bool> writable_{true};
  std::atomic<size_t> bytes_max_{SIZE_MAX};
};

std::unique_ptr<KeyValue> make_memory_store(std::shared_ptr<MemoryContents> contents, const QueueLimits& limits = {});

}  // namespace tuft::store
