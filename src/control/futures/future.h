// A future: one accepted operation and, once it has finished, its outcome.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "control/types/types.h"
#include "telemetry/context.h"
#include "telemetry/trace.h"

namespace tuft::control {

// The public members never change. The rest belongs to FutureStore and its lock.
class Future {
 public:
  RequestId request;
  UserId user;
  OperationType operation = OperationType::kForward;
  OperationKeys keys;
  uint64_t number = 0;             // counts all futures of this process, from 1
  telemetry::SpanContext context;  // of its span; the parent of all spans of its execution
  Nanos created = 0;
  Nanos created_wall = 0;

 private:
  friend class FutureStore;
  friend class FutureTelemetry;
  friend class FinishedFutures;
  friend class PendingFutures;
  friend class SampleFeeds;
  using Done = std::function<void(Result<FutureSnapshot>)>;

  bool is_unread_from_store() const { return state_ == FutureSnapshot::State::kReady && value_ == nullptr; }
  // One that was finished before a restart is not pending, but this process did not decide it. Training that has begun
  // changes weights, whether anybody wants the answer or not.
  bool can_cancel() const {
    const bool is_open = state_ == FutureSnapshot::State::kPending && decided_ == 0;
    return is_open && (!claimed_ || operation == OperationType::kSample);
  }

  std::string key_;
  telemetry::Span span_;
  Nanos sent_ = 0;                                // to a worker; 0: not yet
  Nanos started_ = 0;                             // a worker began; 0: not known
  Nanos decided_ = 0;                             // when its outcome was known, perhaps not durable; 0: not yet
  QueueState queue_state_ = QueueState::kActive;  // under which tuft.futures.queue_length counts it
  QueueState waited_in_ = QueueState::kActive;    // the last one before a worker got it
  bool claimed_ = false;
  bool is_servers_ = false;  // no client asked for it
  std::function<void()> stop_;
  int polls_ = 0;
  FutureSnapshot::State state_ = FutureSnapshot::State::kPending;
  std::shared_ptr<const FutureValue> value_;  // null: it lies apart and was not read, or there is none
  int64_t result_bytes_ = 0;                  // of a result that grows with what was asked for
  bool lies_apart_ = false;                   // the result has a key of its own in the store
  bool is_reading_ = false;                   // it is being read; those who wait get it then
  Error error_;
  std::vector<std::pair<uint64_t, Done>> waiters_;
  Nanos finished_ = 0;
  int64_t cursor_ = 0;  // of a finished sample in its feed
  int64_t bytes_ = 0;
  std::list<Future*>::iterator in_pending_;  // see PendingFutures
  std::list<std::shared_ptr<Future>>::iterator in_session_;
  std::list<std::shared_ptr<Future>>::iterator in_finished_;
  std::list<Future*>::iterator in_shelf_;  // see FinishedFutures
  bool is_kept_ = false;                   // by FinishedFutures
  bool is_delivered_ = false;              // a client has got the outcome
};
using FuturePtr = std::shared_ptr<Future>;

// Returns the bytes of a result that grows with what was asked for; 0 for the others.
inline int64_t bytes_of(const FutureValue& value) {
  const auto* protobuf = std::get_if<ProtobufResult>(&value);
  return protobuf == nullptr ? 0 : static_cast<int64_t>(protobuf->bytes.size());
}

}  // namespace tuft::control
