// The port to a persistent store of records under text keys, and the rules that all of its implementations keep.
//
// Every call returns at once; its answer comes through `done`, exactly once, on the store's own thread. Writes take
// effect in the order of the calls, each as a whole or not at all, and are durable when `done` hears success: on disk
// (SQLite) or acknowledged by the server (Redis). What is read sees every write before it. A write whose `done` heard
// an error may have happened all the same (its acknowledgement was lost); writing it again is harmless.
//
// Errors are kUnavailable where trying again may help, with a reason out of a closed set: store_unreachable,
// store_timeout, store_full, store_readonly, store_locked, store_refused, store_io. They name the store, never a
// credential or a value.
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

struct Change {
  std::string key;
  std::optional<std::string> value;        // none: the key goes
  std::optional<Nanos> time_to_live = {};  // the entry goes by itself after this long; none: it stays
};

struct Write {
  std::vector<Change> changes;
  telemetry::SpanContext trace = {};  // what it is done for: the parent of its spans
};

struct Entry {
  std::string key;
  std::string value;
};

// Thread-safe.
class KeyValue {
 public:
  using WriteDone = std::function<void(Status)>;
  using GetDone = std::function<void(Result<std::optional<std::string>>)>;
  using ScanDone = std::function<void(Result<std::vector<Entry>>)>;

  // Closes.
  virtual ~KeyValue() = default;

  // An error, and `done` is never called, where the call is refused: kInvalidArgument for an empty or overlong key,
  // kPayloadTooLarge for a value, kResourceExhausted "store_queue" when too much is queued, kUnavailable after close().
  virtual Status write(Write write, WriteDone done) = 0;
  // Nothing where there is no such key.
  virtual Status get(std::string key, const telemetry::SpanContext& trace, GetDone done) = 0;
  // Every entry whose key begins with `prefix`, sorted by key.
  virtual Status scan(std::string prefix, const telemetry::SpanContext& trace, ScanDone done) = 0;

  // How the last operation, or the probe that runs every second while there is none, ended; but after a write that
  // was refused only a write that succeeds is good news: what refuses to write may still answer everything else.
  virtual Status health() const = 0;
  // For people: "SQLite file /x/y.db", "Redis at host:6379". Without credentials.
  virtual const std::string& name() const = 0;
  // Takes nothing more and answers what is queued; what is not answered after `budget` fails with kUnavailable
  // "store_closed". Takes little longer than `budget` where the store hangs. Not from a `done`.
  virtual void close(Nanos budget) = 0;
};

// The same calls, waiting for the answer: for the start of a program and for tools.
Status write_and_wait(KeyValue& store, Write write);
Result<std::optional<std::string>> get_and_wait(KeyValue& store, std::string key,
                                                const telemetry::SpanContext& trace = {});
Result<std::vector<Entry>> scan_and_wait(KeyValue& store, std::string prefix, const telemetry::SpanContext& trace = {});

}  // namespace tuft::store
