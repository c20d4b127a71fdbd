// The methods of tuft.worker.v1.ModelActor, described once for both ends of the connection. The lists below give each
// unary method a description rpc::X, a member function of actor::ModelActor and a handler in worker/service.
//
// To add a method X: add the rpc and the messages XRequest and XResponse to model_actor.proto, a line to one of the
// lists, and a handler to the worker: make_operation(Call<rpc::X>) for an operation, Service::handle(Call<rpc::X>)
// otherwise. A missing handler fails the build.
#pragma once

#include <string_view>

#include "base/clock.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::rpc {

inline constexpr const char* kIdsMetadata = "tuft-ids-bin";  // a serialized CallIds
inline constexpr int kMessageBytesMax = 256 << 20;

// Default deadlines.
inline constexpr Nanos kOperationTimeout = 600 * kSecond;
inline constexpr Nanos kCollectTimeout = kSecond;
inline constexpr Nanos kCollectTracesTimeout = 5 * kSecond;

// METHOD(name, member function of ModelActor, default deadline).

// Operations on one adapter or sampler. The worker runs them on its engine thread, those of one adapter in order of
// arrival.
#define TUFT_OPERATION_METHODS(METHOD)                       \
  METHOD(CreateAdapter, create_adapter, kOperationTimeout)   \
  METHOD(RemoveAdapter, remove_adapter, kOperationTimeout)   \
  METHOD(OptimStep, optim_step, kOperationTimeout)           \
  METHOD(SaveState, save_state, kOperationTimeout)           \
  METHOD(LoadState, load_state, kOperationTimeout)           \
  METHOD(AddSampler, add_sampler, kOperationTimeout)         \
  METHOD(RemoveSampler, remove_sampler, kOperationTimeout)   \
  METHOD(PublishAdapter, publish_adapter, kOperationTimeout) \
  METHOD(SaveSampler, save_sampler, kOperationTimeout)

// Methods that the worker's service checks or answers on gRPC's thread. After that, ForwardBackward and Sample continue
// on the engine thread.
#define TUFT_SERVICE_METHODS(METHOD)                           \
  METHOD(Describe, describe, kOperationTimeout)                \
  METHOD(ForwardBackward, forward_backward, kOperationTimeout) \
  METHOD(Sample, sample, kOperationTimeout)                    \
  METHOD(CollectMetrics, collect_metrics, kCollectTimeout)     \
  METHOD(KeepTraces, keep_traces, kCollectTimeout)             \
  METHOD(CollectTraces, collect_traces, kCollectTracesTimeout)

#define TUFT_UNARY_METHODS(METHOD) \
  TUFT_OPERATION_METHODS(METHOD)   \
  TUFT_SERVICE_METHODS(METHOD)

// A method without its message types.
struct Method {
  std::string_view name;      // in the proto file, in the request path and in the metric label `method`
  std::string_view function;  // of ModelActor
  Nanos timeout = 0;
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
  static constexpr Method kMethod = {"StreamSample", "stream_sample", kOperationTimeout};
};

}  // namespace tuft::rpc
