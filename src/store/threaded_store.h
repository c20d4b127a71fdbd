// The thread, the bounded queue and the telemetry that every store has; what differs between them is the Backend.
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

// A store as its thread sees it: calls block. Confined to that thread once the store runs.
class Backend {
 public:
  virtual ~Backend() = default;

  // One status per write, in order.
  virtual std::vector<Status> write(std::span<const Write> writes) = 0;
  virtual Result<std::optional<std::string>> get(const std::string& key) = 0;
  virtual Result<std::vector<Entry>> scan(const std::string& prefix) = 0;
  // Called about every second while nothing is asked for.
  virtual Status probe() = 0;
  // probe() writes where a write failed before, so that its success says that writes work.
  virtual bool probe_writes() const { return false; }
  // On another thread, perhaps while a call blocks: that one and all later ones are to fail soon.
  virtual void interrupt() {}
};

struct QueueLimits {
  size_t operations_max = 65'536;
  size_t bytes_max = size_t{512} << 20;  // of keys and values
};

// Writes that wait are handed to the backend together, so that one fsync or one round trip serves all of them.
std::unique_ptr<KeyValue> make_threaded_store(std::unique_ptr<Backend> backend, StoreIdentity identity,
                                              const QueueLimits& limits = {});

}  // namespace tuft::store
