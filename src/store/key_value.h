// The interface of a persistent key-value store, and the contract of all its implementations.
//
// Every call returns at once; its result is passed to `done`, exactly once, on the store's own thread. Writes take
// effect in the order of the calls. Each is atomic, and durable when `done` gets success: on disk (SQLite) or
// acknowledged by the server (Redis). A read sees all earlier writes. A write whose `done` gets an error may still have
// happened, if only its acknowledgement was lost; repeating it is harmless.
//
// Errors that may pass are kUnavailable, with one of these reasons: store_unreachable, store_timeout, store_full,
// store_out_of_memory (kOutOfMemory), store_readonly, store_locked, store_refused, store_io. Messages name the store,
// never a credential or a value.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "telemetry/context.h"

namespace tuft::store {

inline constexpr size_t kKeyBytesMax = 1024;
inline constexpr size_t kValueBytesMax = size_t{256} << 20;
// The reason why a store refuses values although it still takes writes that only delete, which make room: Redis at its
// maxmemory.
inline constexpr const char* kOutOfMemory = "store_out_of_memory";

struct Change {
  std::string key;
  std::optional<std::string> value;        // none: the key is deleted
  std::optional<Nanos> time_to_live = {};  // the entry expires after this time; none: never
};

struct Write {
  std::vector<Change> changes;
  telemetry::SpanContext trace = {};  // the parent of the write's spans
};

struct Entry {
  std::string key;
  std::string value;
};
using Prefixes = std::vector<std::string>;

// Thread-safe.
class KeyValue {
 public:
  using WriteDone = std::function<void(Status)>;
  using GetDone = std::function<void(Result<std::optional<std::string>>)>;
  using ScanDone = std::function<void(Result<std::vector<Entry>>)>;

  // Closes the store.
  virtual ~KeyValue() = default;

  // A call that is refused returns an error and never calls `done`: kInvalidArgument for an empty or overlong key,
  // kPayloadTooLarge for a value, kResourceExhausted "store_queue" if the queue is full, kUnavailable after close().
  virtual Status write(Write write, WriteDone done) = 0;
  // The result is empty if there is no such key.
  virtual Status get(std::string key, const telemetry::SpanContext& trace, GetDone done) = 0;
  // The result has every entry whose key begins with one of `prefixes`, sorted by key. Many prefixes cost little more
  // than one: Redis looks at all keys for each call. No prefix may begin with another one.
  virtual Status scan(Prefixes prefixes, const telemetry::SpanContext& trace, ScanDone done) = 0;
  // The same for one prefix with empty values, which are not read.
  virtual Status scan_keys(std::string prefix, const telemetry::SpanContext& trace, ScanDone done) = 0;

  // The result of the last operation, or of the probe that runs every second while the store is idle. After a refused
  // write it stays bad until a write succeeds, because a store that refuses writes may still answer reads.
  virtual Status health() const = 0;
  // Returns the name for messages: "SQLite file /x/y.db", "Redis at host:6379". It has no credentials.
  virtual const std::string& name() const = 0;
  // Refuses new calls and answers the queued ones; those that are not answered within `budget` fail with kUnavailable
  // "store_closed". If the store hangs, close() takes little longer than `budget`. Must not be called from a `done`.
  virtual void close(Nanos budget) = 0;
};

// The same calls, but blocking. For the start of a program and for tools.
Status write_and_wait(KeyValue& store, Write write);
Result<std::optional<std::string>> get_and_wait(KeyValue& store, std::string key,
                                                const telemetry::SpanContext& trace = {});
Result<std::vector<Entry>> scan_and_wait(KeyValue& store, Prefixes prefixes, const telemetry::SpanContext& trace = {});
Result<std::vector<Entry>> scan_keys_and_wait(KeyValue& store, std::string prefix);

}  // namespace tuft::store
