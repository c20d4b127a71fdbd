// The origin of a sample, which receives its answer: a future (FutureSink) or a listener (StreamSink).
#pragma once

#include <memory>
#include <utility>

#include "actor/model_actor.h"
#include "base/result.h"
#include "control/futures/future_store.h"
#include "control/sampling/sample_records.h"

namespace tuft::control {

// Thread-safe; methods are called without a lock.
class SampleSink {
 public:
  virtual ~SampleSink() = default;

  // Returns true once nobody wants the answer any more.
  virtual bool is_cancelled() const = 0;
  // The sample goes to the worker now.
  virtual void mark_sent() {}
  // The worker has answered, and says for how many seconds it kept the sample waiting.
  virtual void mark_started(double /*queue_seconds*/) {}
  // Calls the worker, and lets a cancel end the call. `done` is called once, perhaps before this returns.
  virtual void send(actor::ModelActor& worker, std::shared_ptr<const worker::v1::SampleRequest> request,
                    const actor::CallOptions& options, actor::Callback<worker::v1::SampleResponse> done) = 0;
  // Returns whether nobody notices that the sample is drawn again, by another send().
  virtual bool may_repeat() const = 0;
  // Hands over the answer. Called once, after send() or instead of it.
  virtual void finish(Result<worker::v1::SampleResponse> result) = 0;
  // The answer came after the end of the server's objects. Called instead of finish().
  virtual void abandon() {}
};

// A sample whose client polls a future.
class FutureSink final : public SampleSink {
 public:
  // `records` keeps what the answer brings for it.
  FutureSink(FutureStore& futures, FuturePtr future, std::shared_ptr<SampleRecords> records)
      : futures_(futures), future_(std::move(future)), records_(std::move(records)) {}

  bool is_cancelled() const override { return futures_.has_ended(*future_); }
  void mark_sent() override { futures_.mark_sent(*future_); }
  void mark_started(double queue_seconds) override { futures_.mark_started(*future_, queue_seconds); }
  void send(actor::ModelActor& worker, std::shared_ptr<const worker::v1::SampleRequest> request,
            const actor::CallOptions& options, actor::Callback<worker::v1::SampleResponse> done) override {
    futures_.on_cancel(*future_, worker.call<rpc::Sample>(std::move(request), options, std::move(done)));
  }
  bool may_repeat() const override { return true; }
  void finish(Result<worker::v1::SampleResponse> result) override {
    if (!result.ok()) return futures_.complete(future_, std::move(result).error());
    // Kept first, so that a client that sees the result finds the records. Nobody sees that of a cancelled sample.
    if (result->records_size() > 0 && !is_cancelled()) records_->keep(future_->keys, *result);
    futures_.complete(future_, FutureValue(ProtobufResult{std::move(*result->mutable_response())}));
  }

 private:
  FutureStore& futures_;
  const FuturePtr future_;
  const std::shared_ptr<SampleRecords> records_;
};

}  // namespace tuft::control
