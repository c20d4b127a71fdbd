// The ModelActor port: one base model in another process, as the control plane sees it. Calls return at once; the
// answer comes through the callback, exactly once, on a thread of the implementation: do little there, never block.
//
// Errors: what the worker says, or kUnavailable with reason "worker_died" / "worker_starting" when there is none, or
// kDeadlineExceeded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "telemetry/context.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::actor {

template <typename Response>
using Callback = std::function<void(Result<Response>)>;

// Ends the call that gave it, which then fails with kCancelled unless it has ended before. Thread-safe; may outlive the
// call and the actor. Not to be called with a lock that the call's callbacks take.
using Cancel = std::function<void()>;

inline constexpr Nanos kCollectTimeout = kSecond;
inline constexpr Nanos kCollectTracesTimeout = 5 * kSecond;

struct CallOptions {
  telemetry::SpanContext trace;  // becomes the parent of the worker's spans
  Nanos timeout = 600 * kSecond;
  worker::v1::CallIds ids = {};  // share keys of the worker's spans and logs; what is not known stays empty
};

// Thread-safe.
class ModelActor {
 public:
  virtual ~ModelActor() = default;

  virtual const std::string& base_model() const = 0;
  // Up and answering. A call while it is not fails with kUnavailable.
  virtual bool ready() const = 0;
  // Counts the worker's lives, from 1: every restart loses what was in its memory.
  virtual uint64_t generation() const = 0;
  // Called with the new generation whenever a worker has become ready, the first time too. Set before start.
  virtual void on_ready(std::function<void(uint64_t generation)> callback) = 0;

  virtual void describe(const CallOptions&, Callback<worker::v1::DescribeResponse>) = 0;
  virtual void create_adapter(worker::v1::CreateAdapterRequest, const CallOptions&,
                              Callback<worker::v1::CreateAdapterResponse>) = 0;
  virtual void remove_adapter(worker::v1::RemoveAdapterRequest, const CallOptions&,
                              Callback<worker::v1::RemoveAdapterResponse>) = 0;
  virtual void forward_backward(worker::v1::ForwardBackwardRequest, const CallOptions&,
                                Callback<worker::v1::ForwardBackwardResponse>) = 0;
  virtual void optim_step(worker::v1::OptimStepRequest, const CallOptions&,
                          Callback<worker::v1::OptimStepResponse>) = 0;
  virtual void save_state(worker::v1::SaveStateRequest, const CallOptions&,
                          Callback<worker::v1::SaveStateResponse>) = 0;
  virtual void load_state(worker::v1::LoadStateRequest, const CallOptions&,
                          Callback<worker::v1::LoadStateResponse>) = 0;
  virtual void add_sampler(worker::v1::AddSamplerRequest, const CallOptions&,
                           Callback<worker::v1::AddSamplerResponse>) = 0;
  virtual void remove_sampler(worker::v1::RemoveSamplerRequest, const CallOptions&,
                              Callback<worker::v1::RemoveSamplerResponse>) = 0;
  virtual void publish_adapter(worker::v1::PublishAdapterRequest, const CallOptions&,
                               Callback<worker::v1::PublishAdapterResponse>) = 0;
  virtual void save_sampler(worker::v1::SaveSamplerRequest, const CallOptions&,
                            Callback<worker::v1::SaveSamplerResponse>) = 0;
  virtual Cancel sample(worker::v1::SampleRequest, const CallOptions&, Callback<worker::v1::SampleResponse>) = 0;
  // `on_tokens` gets what is new, in order, before the callback gets the whole answer; one call at a time.
  using OnTokens = std::function<void(const worker::v1::SampleDelta&)>;
  virtual Cancel stream_sample(worker::v1::SampleRequest, const CallOptions&, OnTokens on_tokens,
                               Callback<worker::v1::SampleResponse>) = 0;

  // The worker's metrics for render_metrics(); answered within kCollectTimeout.
  virtual void collect_metrics(Callback<worker::v1::CollectMetricsResponse>) = 0;
  // Tells the worker; nobody hears whether it arrived. Does not block.
  virtual void keep_traces(worker::v1::KeepTracesRequest) = 0;
  // The worker's spans of these traces; answered within kCollectTracesTimeout.
  virtual void collect_traces(worker::v1::CollectTracesRequest, Callback<worker::v1::CollectTracesResponse>) = 0;
};

}  // namespace tuft::actor
