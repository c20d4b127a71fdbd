// The thread, the bounded queue and the telemetry that all stores share. A Backend does the work.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "store/key_value.h"
#include "store/operation_telemetry.h"

namespace tuft::store {

// The blocking operations of a store. Confined to the store's thread.
class Backend {
 public:
  virtual ~Backend() = default;

  // Returns one status per write, in order.
  virtual std::vector<Status> write(std::span<const Write> writes) = 0;
  virtual Result<std::optional<std::string>> get(const std::string& key) = 0;
  virtual Result<std::vector<Entry>> scan(const Prefixes& prefixes) = 0;  // sorted
  // The same with empty values. A store that can leave them unread overrides it.
  virtual Result<std::vector<Entry>> scan_keys(const std::string& prefix);
  // Checks the store; called about every second while it is idle.
  virtual Status probe() = 0;
  // True if probe() writes after a failed write, so that its success shows that writes work.
  virtual bool probe_writes() const { return false; }
  // Makes the current call and all later ones fail soon. Called on another thread.
  virtual void interrupt() {}
};

struct QueueLimits {
  size_t operations_max = 65'536;
  size_t bytes_max = size_t{512} << 20;  // of keys and values
};

// Passes waiting writes to the backend together, so that they share one fsync or round trip.
std::unique_ptr<KeyValue> make_threaded_store(std::unique_ptr<Backend> backend, StoreIdentity identity,
                                              const QueueLimits& limits = {});

}  // namespace tuft::store
