// The methods of tuft.worker.v1.ModelActor, described once for both ends of the connection. The lists below give each
// unary method a description rpc::X, a member function of actor::ModelActor and a handler in worker/service.
//
// To add a method X: add the rpc and the messages XRequest and XResponse to model_actor.proto, a line to one of the
// lists, and a handler to the worker: make_operation(Call<rpc::X>) for an operation, Service::handle(Call<rpc::X>)
// otherwise. A missing handler fails the build.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::rpc {

inline constexpr const char* kIdsMetadata = "tuft-ids-bin";  // a serialized CallIds
inline constexpr int kMessageBytesMax = 256 << 20;
// Of that, for the values in a message. The rest is for their keys and shapes, for times and for numbers. What makes an
// answer is limited by this beforehand: it would be refused after its work was done.
inline constexpr int64_t kValueBytesMax = kMessageBytesMax - (1 << 20);
// The most cells of the loss inputs of one request, counting sparse tensors as dense. The answer has up to a float for
// each. A small message could otherwise ask for much memory: sparse tensors become dense when their datum runs, and the
// control plane charges the user for that.
inline constexpr int64_t kLossCellsMax = kValueBytesMax / static_cast<int64_t>(sizeof(float));
static_assert(kLossCellsMax == (1 << 26) - (1 << 18), "docs/configuration.md names the number");

// Default deadlines. What changes state or takes a place at the engine has none: an operation that was reported failed
// while the worker goes on with it would be done twice. Such a call ends with its answer, or with its worker's life.
inline constexpr Nanos kNoTimeout = 0;
inline constexpr Nanos kDescribeTimeout = 60 * kSecond;
inline constexpr Nanos kCollectTimeout = kSecond;
inline constexpr Nanos kCollectTracesTimeout = 5 * kSecond;

// METHOD(name, member function of ModelActor, default deadline).

// Operations on one adapter or sampler. The worker runs them on its engine thread, those of one adapter in order of
// arrival.
#define TUFT_OPERATION_METHODS(METHOD)                \
  METHOD(CreateAdapter, create_adapter, kNoTimeout)   \
  METHOD(RemoveAdapter, remove_adapter, kNoTimeout)   \
  METHOD(OptimStep, optim_step, kNoTimeout)           \
  METHOD(SaveState, save_state, kNoTimeout)           \
  METHOD(LoadState, load_state, kNoTimeout)           \
  METHOD(AddSampler, add_sampler, kNoTimeout)         \
  METHOD(RemoveSampler, remove_sampler, kNoTimeout)   \
  METHOD(PublishAdapter, publish_adapter, kNoTimeout) \
  METHOD(SaveSampler, save_sampler, kNoTimeout)

// Methods that the worker's service checks or answers on gRPC's thread. After that, ForwardBackward and Sample continue
// on the engine thread.
#define TUFT_SERVICE_METHODS(METHOD)                           \
  METHOD(Describe, describe, kDescribeTimeout)                 \
  METHOD(ListHoldings, list_holdings, kCollectTracesTimeout)   \
  METHOD(ForwardBackward, forward_backward, kNoTimeout)        \
  METHOD(Sample, sample, kNoTimeout)                           \
  METHOD(CollectMetrics, collect_metrics, kCollectTimeout)     \
  METHOD(KeepTraces, keep_traces, kCollectTimeout)             \
  METHOD(CollectTraces, collect_traces, kCollectTracesTimeout) \
  METHOD(TakeTelemetry, take_telemetry, kCollectTimeout)

#define TUFT_UNARY_METHODS(METHOD) \
  TUFT_OPERATION_METHODS(METHOD)   \
  TUFT_SERVICE_METHODS(METHOD)

// A method without its message types.
struct Method {
  std::string_view name;      // in the proto file, in the request path and in the metric label `method`
  std::string_view function;  // of ModelActor
  Nanos timeout = kNoTimeout;
};

#define TUFT_DEFINE_METHOD(Name, function, timeout)                \
  struct Name {                                                    \
    using Request = worker::v1::Name##Request;                     \
    using Response = worker::v1::Name##Response;                   \
    static constexpr Method kMethod = {#Name, #function, timeout}; \
  };
TUFT_UNARY_METHODS(TUFT_DEFINE_METHOD)
#undef TUFT_DEFINE_METHOD

// The only method that streams. The last message holds Response.
struct StreamSample {
  using Request = worker::v1::SampleRequest;
  using Response = worker::v1::SampleResponse;
  static constexpr Method kMethod = {"StreamSample", "stream_sample", kNoTimeout};
};

}  // namespace tuft::rpc
