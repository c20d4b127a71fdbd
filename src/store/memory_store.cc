#include "store/memory_store.h"

#include <algorithm>
#include <utility>

namespace tuft::store {

std::map<std::string, std::string> MemoryContents::copy() const {
  std::map<std::string, std::string> entries;
  MutexLock lock(mutex_);
  for (const auto& [key, value] : values_) entries.emplace(key, value.bytes);
  return entries;
}

void MemoryContents::erase(const std::string& key) {
  MutexLock lock(mutex_);
  values_.erase(key);
}

void MemoryContents::put(const std::string& key, std::string value) {
  MutexLock lock(mutex_);
  values_[key] = Value{std::move(value), std::nullopt};
}

void MemoryContents::hold(bool hold) {
  {
    MutexLock lock(mutex_);
    held_ = hold;
  }
  released_.notify_all();
}

size_t MemoryContents::waiting() const {
  MutexLock lock(mutex_);
  return waiting_;
}

Status MemoryContents::admit(const std::atomic<bool>& interrupted) {
  {
    MutexLock lock(mutex_);
    ++waiting_;
    while (held_ && !interrupted) released_.wait(mutex_);
    --waiting_;
  }
  if (interrupted) return unavailable("the store in memory was closed", "store_closed");
  if (reachable_) return {};
  return unavailable("the store in memory was made unreachable", "store_unreachable");
}

void MemoryContents::interrupt(std::atomic<bool>& interrupted) {
  {
    MutexLock lock(mutex_);
    interrupted = true;
  }
  released_.notify_all();
}

bool MemoryContents::has_room_locked(const Write& write) const {
  if (bytes_max_ == SIZE_MAX) return true;
  const auto puts = [](const Change& change) { return change.value.has_value(); };
  if (std::none_of(write.changes.begin(), write.changes.end(), puts)) return true;
  size_t bytes = 0;
  for (const auto& entry : values_) bytes += entry.second.bytes.size();
  return bytes < bytes_max_;
}

class MemoryBackend final : public Backend {
 public:
  explicit MemoryBackend(std::shared_ptr<MemoryContents> contents) : contents_(std::move(contents)) {}

  std::vector<Status> write(std::span<const Write> writes) override {
    if (const Status admitted = contents_->admit(interrupted_); !admitted.ok())
      return std::vector<Status>(writes.size(), admitted);
    if (!contents_->writable_) {
      return std::vector<Status>(writes.size(),
                                 unavailable("the store in memory was made read-only", "store_readonly"));
    }
    const Nanos now = system_clock().monotonic();
    std::vector<Status> results;
    MutexLock lock(contents_->mutex_);
    for (const Write& write : writes) {
      const bool has_room = contents_->has_room_locked(write);
      results.push_back(has_room ? Status() : unavailable("the store in memory is out of memory", kOutOfMemory));
      if (!has_room) continue;
      for (const Change& change : write.changes) {
        if (!change.value) {
          contents_->values_.erase(change.key);
          continue;
        }
        std::optional<Nanos> expires;
        if (change.time_to_live) expires = now + *change.time_to_live;
        contents_->values_[change.key] = {*change.value, expires};
      }
    }
    return results;
  }

  Result<std::optional<std::string>> get(const std::string& key) override {
    TUFT_TRY(contents_->admit(interrupted_));
    MutexLock lock(contents_->mutex_);
    const auto found = contents_->values_.find(key);
    if (found == contents_->values_.end() || is_expired(found->second)) return std::optional<std::string>();
    return std::optional<std::string>(found->second.bytes);
  }

  Result<std::vector<Entry>> scan(const Prefixes& prefixes) override {
    TUFT_TRY(contents_->admit(interrupted_));
    std::vector<Entry> entries;
    MutexLock lock(contents_->mutex_);
    for (const std::string& prefix : prefixes) {
      for (auto at = contents_->values_.lower_bound(prefix);
           at != contents_->values_.end() && at->first.starts_with(prefix); ++at) {
        if (!is_expired(at->second)) entries.push_back({at->first, at->second.bytes});
      }
    }
    return entries;
  }

  Status probe() override { return contents_->admit(interrupted_); }
  void interrupt() override { contents_->interrupt(interrupted_); }

 private:
  static bool is_expired(const MemoryContents::Value& value) {
    return value.expires && *value.expires <= system_clock().monotonic();
  }

  const std::shared_ptr<MemoryContents> contents_;
  std::atomic<bool> interrupted_{false};
};

std::unique_ptr<KeyValue> make_memory_store(std::shared_ptr<MemoryContents> contents, const QueueLimits& limits) {
  StoreIdentity identity{.name = "the store in memory",
                         .system = "memory",
                         .address = {},
                         .port = 0,
                         .database = {},
                         .scope = "tuft.store",
                         .span_names = {"store.SET", "store.GET", "store.DEL", "store.SCAN"},
                         .is_redis = false};
  return make_threaded_store(std::make_unique<MemoryBackend>(std::move(contents)), std::move(identity), limits);
}

}  // namespace tuft::store
