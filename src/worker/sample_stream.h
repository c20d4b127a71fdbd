// One StreamSample call: what the engine thread draws, on its way to a reader who may be slow.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "base/mutex.h"
#include "base/result.h"
#include "engine/sample/sampler.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::worker {

// One message at a time is under way; what is drawn meanwhile goes together into the next one, so that there is never
// more waiting than the answer holds. Thread-safe; deletes itself when gRPC is done with it, after end().
class SampleStream final : public grpc::ServerWriteReactor<v1::SampleDelta> {
 public:
  explicit SampleStream(grpc::CallbackServerContext& context) : context_(context) {}

  // Set before the call is handed on: a cancel can come at any time after.
  void on_cancel(std::function<void()> cancel) { cancel_ = std::move(cancel); }

  // Never waits.
  void add(int sample, std::span<const int32_t> tokens, std::span<const float> logprobs,
           std::span<const std::vector<engine::TokenLogprob>> topk);
  // Once, last.
  void end(Result<v1::SampleResponse> result);

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override {
    if (cancel_) cancel_();
  }
  void OnDone() override { delete this; }

  struct Next {
    enum class Step : uint8_t { kNothing, kWrite, kAnswer, kFail } step = Step::kNothing;
    Status status;  // of kFail
  };
  // What is to be begun now; the caller gives it to go_on().
  Next take_next_locked() TUFT_REQUIRES(mutex_);
  // Outside the lock: gRPC may call back at once. Of this, nothing may be touched after it, nor where it is kNothing.
  void go_on(const Next& next);

  grpc::CallbackServerContext& context_;
  std::function<void()> cancel_;

  Mutex mutex_;
  bool writing_ TUFT_GUARDED_BY(mutex_) = false;
  bool broken_ TUFT_GUARDED_BY(mutex_) = false;  // nobody reads any more
  bool ended_ TUFT_GUARDED_BY(mutex_) = false;
  bool finished_ TUFT_GUARDED_BY(mutex_) = false;
  v1::SampleDelta waiting_ TUFT_GUARDED_BY(mutex_);
  v1::SampleResponse answer_ TUFT_GUARDED_BY(mutex_);
  Status status_ TUFT_GUARDED_BY(mutex_);
  v1::SampleDelta written_;  // gRPC's while writing_
};

}  // namespace tuft::worker
