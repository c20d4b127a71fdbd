// Where the lives of a worker come from: a process that the server starts, or a worker that joins.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>

#include "actor/worker_rows.h"
#include "base/clock.h"
#include "base/result.h"

namespace grpc {
class Channel;
}

namespace tuft::actor {

// A worker from its start, or its turn, to its end. Confined to the thread that watches it.
class WorkerLife {
 public:
  virtual ~WorkerLife() = default;

  virtual uint64_t row() const = 0;  // its number in WorkerRows
  virtual pid_t pid() const = 0;
  virtual const std::string& host() const = 0;
  // Returns whether it is the worker of the life before, which has joined again.
  virtual bool is_back() const { return false; }
  // Returns when the worker last gave a sign of life besides its answers, by the monotonic clock; 0: never.
  virtual Nanos last_sign() const { return 0; }
  // Readable once the life has ended.
  virtual int ended_fd() const = 0;
  // Returns the channel to the worker, or null as long as it cannot be reached. Not called again after it returned one.
  virtual std::shared_ptr<grpc::Channel> connect() = 0;
  virtual void ask_to_end() = 0;
  virtual void kill() = 0;
  // Waits for the end and returns what happened, for instance "was killed by signal 9 (Killed)".
  virtual std::string reap() = 0;
};

// Confined to the thread that watches its lives, but for the constructor, the destructor and on_available().
class WorkerSource {
 public:
  virtual ~WorkerSource() = default;

  // Returns an error if no life can ever begin.
  virtual Status check() const { return {}; }
  // Sets what to call, on any thread, when available() may have become true; empty: nothing any more.
  virtual void on_available(std::function<void()> wake) = 0;
  // Returns whether a life can begin now.
  virtual bool available() const { return true; }
  // Returns whether a life can begin now whose worker has read its weights.
  virtual bool has_loaded() const { return false; }
  // Begins a life; null if none can begin any more, because another place of the base model took the worker.
  // `generation` numbers the life; `traceparent` is that of the span of the start, or empty.
  virtual Result<std::unique_ptr<WorkerLife>> begin(uint64_t generation, const std::string& traceparent) = 0;
};

}  // namespace tuft::actor
