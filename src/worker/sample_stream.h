// One StreamSample call: carries tokens from the engine thread to a reader that may be slow.
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

// Sends one message at a time. Tokens drawn meanwhile are collected in the next message, so the tokens that wait are
// never more than those of the answer. Thread-safe. Deletes itself when gRPC is done with it, after end().
class SampleStream final : public grpc::ServerWriteReactor<v1::SampleDelta> {
 public:
  explicit SampleStream(grpc::CallbackServerContext& context) : context_(context) {}

  // Must be set before the call is passed on, because a cancel can come at any time after that.
  void on_cancel(std::function<void()> cancel) { cancel_ = std::move(cancel); }

  // Does not block. Throws std::bad_alloc where the tokens find no memory; the call must then end with an error.
  void add(int sample, std::span<const int32_t> tokens, std::span<const float> logprobs,
           std::span<const std::vector<engine::TokenLogprob>> topk);
  // Must be called exactly once, after the last add().
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
  void append_locked(int sample, std::span<const int32_t> tokens, std::span<const float> logprobs,
                     std::span<const std::vector<engine::TokenLogprob>> topk) TUFT_REQUIRES(mutex_);
  // Returns what to begin now. The caller must pass it to go_on().
  Next take_next_locked() TUFT_REQUIRES(mutex_);
  // Called outside the lock, because gRPC may call back at once. This object may be gone afterwards, also for kNothing.
  void go_on(const Next& next);

  grpc::CallbackServerContext& context_;
  std::function<void()> cancel_;

  Mutex mutex_;
  bool writing_ TUFT_GUARDED_BY(mutex_) = false;
  bool broken_ TUFT_GUARDED_BY(mutex_) = false;  // the reader is gone
  bool ended_ TUFT_GUARDED_BY(mutex_) = false;
  bool finished_ TUFT_GUARDED_BY(mutex_) = false;
  v1::SampleDelta waiting_ TUFT_GUARDED_BY(mutex_);
  v1::SampleResponse answer_ TUFT_GUARDED_BY(mutex_);
  Status status_ TUFT_GUARDED_BY(mutex_);
  v1::SampleDelta written_;  // belongs to gRPC while writing_
};

}  // namespace tuft::worker
