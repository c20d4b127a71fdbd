#include "worker/service.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <type_traits>
#include <unistd.h>

#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>

#include "engine/loss/custom_loss.h"
#include "engine/loss/loss.h"
#include "rpc/status.h"
#include "telemetry/export/outbox.h"
#include "telemetry/export/span_archive.h"
#include "telemetry/exposition.h"
#include "telemetry/record/tail_sampler.h"
#include "telemetry/trace.h"
#include "tuft/worker/v1/model_actor.grpc.pb.h"
#include "worker/conversion.h"
#include "worker/kept_calls.h"
#include "worker/preparations.h"
#include "worker/sample_messages.h"
#include "worker/sample_stream.h"
#include "worker/sample_trace.h"
#include "worker/share_keys.h"
#include "worker/without_exceptions.h"

namespace tuft::worker {
namespace {

constexpr Nanos kFillTime = 200 * kMillisecond;

// The gRPC side of a unary call. Deletes itself when gRPC is done with it, after finish().
class PendingCall final : public grpc::ServerUnaryReactor {
 public:
  explicit PendingCall(grpc::CallbackServerContext& context) : context_(context) {}

  // Must be set before the call is passed on, because a cancel can come at any time after that.
  void on_cancel(std::function<void()> cancel) { cancel_ = std::move(cancel); }
  void finish(const Status& status) { Finish(status.ok() ? grpc::Status::OK : rpc::to_grpc(status.error(), context_)); }

 private:
  void OnCancel() override {
    if (cancel_) cancel_();
  }
  void OnDone() override { delete this; }

  grpc::CallbackServerContext& context_;
  std::function<void()> cancel_;
};

std::vector<telemetry::TraceId> read_traces(const google::protobuf::RepeatedPtrField<v1::TraceId>& messages) {
  std::vector<telemetry::TraceId> traces;
  traces.reserve(static_cast<size_t>(messages.size()));
  for (const v1::TraceId& trace : messages) traces.push_back({trace.high(), trace.low()});
  return traces;
}

// Implements the methods of rpc/methods.h: each has an overload of handle(), which runs on gRPC's thread. A request
// with a custom loss is prepared on a thread of its own.
class Service final : public v1::ModelActor::CallbackService {
 public:
  Service(EngineLoop& loop, std::string base_model, int64_t kept_bytes_max)
      : loop_(loop), base_model_(std::move(base_model)) {
    if (kept_bytes_max > 0) kept_.emplace(kept_bytes_max);
  }

  size_t adapters() const { return kept_ ? kept_->adapters() : 0; }

  void stop_preparing() { preparations_.stop(); }
  bool drain(Nanos limit) {
    end_ = loop_.clock().monotonic() + limit;
    return is_asked_;
  }

#define TUFT_SERVE(Name, function, timeout)                                                              \
  grpc::ServerUnaryReactor* Name(grpc::CallbackServerContext* context, const v1::Name##Request* request, \
                                 v1::Name##Response* response) override {                                \
    return serve<rpc::Name>(*context, *request, *response);                                              \
  }
  TUFT_UNARY_METHODS(TUFT_SERVE)
#undef TUFT_SERVE

  grpc::ServerWriteReactor<v1::SampleDelta>* StreamSample(grpc::CallbackServerContext* context,
                                                          const v1::SampleRequest* request) override {
    auto* stream = new SampleStream(*context);
    const EngineLoop::Ticket ticket = loop_.next_ticket();
    stream->on_cancel([this, ticket] { loop_.cancel_sample(ticket); });
    const Status handled = without_exceptions([&]() -> Status {
      run_sample(
          *request, caller(*context), ticket,
          [stream](int sample, auto tokens, auto logprobs, auto topk) { stream->add(sample, tokens, logprobs, topk); },
          [stream](Result<v1::SampleResponse> result) { stream->end(std::move(result)); });
      return {};
    });
    if (!handled.ok()) stream->end(handled.error());
    return stream;
  }

 private:
  template <typename Method>
  grpc::ServerUnaryReactor* serve(grpc::CallbackServerContext& context, const typename Method::Request& request,
                                  typename Method::Response& response) {
    auto* pending = new PendingCall(context);
    // gRPC keeps both messages until the call is finished.
    auto reply = [pending, &response](Result<typename Method::Response> result) {
      if (!result.ok()) return pending->finish(std::move(result).error());
      response = std::move(result).value();
      pending->finish({});
    };
    // What throws has not answered, and has let go of the call.
    const Status handled = without_exceptions([&]() -> Status {
      Call<Method> call{request, caller(context), std::move(reply)};
      if (!kept_) {
        handle(std::move(call), *pending);
      } else if (take_in(call)) {
        run_kept(std::move(call), *pending);
      }
      return {};
    });
    if (!handled.ok()) pending->finish(handled);
    return pending;
  }

  // A call that is remembered has to be answered, whatever happens.
  template <typename Method>
  void run_kept(Call<Method> call, PendingCall& pending) {
    const Reply<typename Method::Response> reply = call.reply;
    const Status handled = without_exceptions([&]() -> Status {
      handle(std::move(call), pending);
      return {};
    });
    if (!handled.ok()) reply(handled.error());
  }

  // Remembers calls for adapters and samplers. Returns false if the call is not to run. Requires kept_.
  template <typename Method>
  bool take_in(Call<Method>& call) {
    if constexpr (std::is_same_v<Method, rpc::AddSampler> || std::is_same_v<Method, rpc::RemoveSampler> ||
                  std::is_same_v<Method, rpc::PublishAdapter>) {
      call.reply = kept_->take_in_sampler<Method>(call.request.sampler_id(), std::move(call.reply));
    }
    if constexpr (requires { call.request.adapter_id(); }) {
      auto reply = kept_->take_in<Method>(call.request.adapter_id(), call.caller.ids, std::move(call.reply));
      if (!reply) return false;
      call.reply = std::move(*reply);
    }
    return true;
  }

  // Operations go to the engine thread. The other methods have an overload of their own.
  template <typename Method>
  void handle(Call<Method> call, PendingCall&) {
    loop_.post(make_operation(std::move(call)));
  }

  void handle(const Call<rpc::Describe>& call, PendingCall&) {
    v1::DescribeResponse response;
    const engine::ModelSpec& model = loop_.engine().model();
    response.set_architecture(model.architecture);
    response.set_parameters(model.parameters());
    response.set_vocab_size(model.vocab_size);
    response.set_max_position(model.max_position);
    response.set_weights_dtype(std::string(loop_.engine().weights_dtype()));
    response.set_steps(loop_.steps());
    response.set_pid(getpid());
    is_asked_ = true;
    if (const Nanos end = end_; end != 0) {
      response.set_drain_milliseconds(std::max<Nanos>(1, (end - loop_.clock().monotonic()) / kMillisecond));
    }
    for (const std::string_view loss : engine::loss_names()) response.add_losses(std::string(loss));
    response.add_losses(std::string(engine::kCustomLoss));
    call.reply(std::move(response));
  }

  void handle(const Call<rpc::ListHoldings>& call, PendingCall&) {
    call.reply(kept_ ? kept_->list() : v1::ListHoldingsResponse());
  }

  void handle(Call<rpc::ForwardBackward> call, PendingCall&) {
    const v1::ForwardBackwardRequest& request = call.request;
    auto converted = to_train_request(request.request(), training_adapter(request.adapter_id()), base_model_);
    if (!converted.ok()) return call.reply(std::move(converted).error());
    converted->tenant = request.tenant();
    if (request.has_custom_loss()) return prepare(call, std::move(converted).value());
    loop_.post(make_forward_backward(std::move(call), std::move(converted).value()));
  }

  // The control plane sends the next operation of a run when this one has been answered, so none overtakes it.
  void prepare(const Call<rpc::ForwardBackward>& call, engine::TrainRequest train_request) {
    const auto train = std::make_shared<engine::TrainRequest>(std::move(train_request));
    const bool queued = preparations_.post(train->tenant, [this, call, train](bool stopping) {
      const Status posted = without_exceptions([&]() -> Status {
        if (stopping) return stopping_error();
        TUFT_TRY(read_custom_loss(call.request.custom_loss(), *train));
        loop_.post(make_forward_backward(call, std::move(*train)));
        return {};
      });
      if (!posted.ok()) call.reply(posted.error());
    });
    if (!queued) {
      call.reply(Error{ErrorCode::kResourceExhausted, "too many requests with a custom loss wait; try again later",
                       "worker_queue_full"});
    }
  }

  void handle(Call<rpc::Sample> call, PendingCall& pending) {
    const EngineLoop::Ticket ticket = loop_.next_ticket();
    pending.on_cancel([this, ticket] { loop_.cancel_sample(ticket); });
    run_sample(call.request, std::move(call.caller), ticket, {}, std::move(call.reply));
  }

  void handle(const Call<rpc::CollectMetrics>& call, PendingCall&) {
    v1::CollectMetricsResponse response;
    response.set_snapshot(telemetry::metrics_snapshot());
    call.reply(std::move(response));
  }

  void handle(const Call<rpc::KeepTraces>& call, PendingCall&) {
    telemetry::keep_traces(read_traces(call.request.traces()));
    call.reply(v1::KeepTracesResponse());
  }

  void handle(const Call<rpc::CollectTraces>& call, PendingCall&) {
    v1::CollectTracesResponse response;
    response.set_spans(
        telemetry::archived_spans(read_traces(call.request.traces()), static_cast<size_t>(call.request.bytes_max())));
    call.reply(std::move(response));
  }

  void handle(const Call<rpc::TakeTelemetry>& call, PendingCall&) {
    if (call.request.all()) telemetry::fill_outbox(kFillTime);
    v1::TakeTelemetryResponse response;
    const auto bytes_max = static_cast<size_t>(std::max<int64_t>(call.request.bytes_max(), 0));
    for (const telemetry::OutboxBatch& batch : telemetry::read_outbox(call.request.confirmed(), bytes_max)) {
      v1::TakeTelemetryResponse::Batch& added = *response.add_batches();
      added.set_number(batch.number);
      added.set_logs(batch.logs);
      added.set_request(*batch.request);
    }
    call.reply(std::move(response));
  }

  void run_sample(const v1::SampleRequest& request, Caller who, EngineLoop::Ticket ticket, engine::OnTokens on_tokens,
                  Reply<v1::SampleResponse> reply) {
    std::optional<engine::AdapterId> sampler;
    if (!request.sampler_id().empty()) sampler = sampler_adapter(request.sampler_id());
    auto converted = to_sample_request(request, std::move(sampler));
    if (!converted.ok()) return reply(std::move(converted).error());
    SampleFacts facts = facts_of(*converted, request.sampler_id());
    converted->arrived = who.arrived;
    converted->trace = who.trace;
    AnswerForm form = answer_form(request, static_cast<bool>(on_tokens));
    converted->on_tokens = std::move(on_tokens);
    log_sample_begin(who, facts, base_model_);
    loop_.post_sample(
        ticket, std::move(converted).value(),
        [this, reply = std::move(reply), facts, form = std::move(form), who = std::move(who)](auto result) mutable {
          Result<v1::SampleResponse> response = v1::SampleResponse();
          if (result.ok()) response = respond(*result, facts, form);
          if (!response.ok()) result = out_of_memory();
          (void)without_exceptions([&]() -> Status {
            record_sample(who, facts, base_model_, result, loop_.clock().monotonic());
            return {};
          });
          if (!result.ok()) response = std::move(result).error();
          reply(std::move(response));
        });
  }

  // Results come on the engine thread, which owns the ranks. Refusals may come on another.
  Result<v1::SampleResponse> respond(const engine::SampleResult& result, SampleFacts& facts, const AnswerForm& form) {
    return without_exceptions([&]() -> Result<v1::SampleResponse> {
      facts.lora_rank = loop_.rank_of(sampler_adapter(facts.sampler_id));
      return to_sample_response(result, form);
    });
  }

  Caller caller(const grpc::CallbackServerContext& context) const {
    const auto& metadata = context.client_metadata();
    const auto header = [&](std::string_view key) -> std::string_view {
      const auto found = metadata.find(grpc::string_ref(key.data(), key.size()));
      if (found == metadata.end()) return {};
      return {found->second.data(), found->second.size()};
    };
    Caller caller;
    caller.arrived = loop_.clock().monotonic();
    const telemetry::SpanContext sent = telemetry::extract(header, telemetry::Peer::kOwnProcess);
    const std::string_view ids = header(rpc::kIdsMetadata);
    // Only spans and logs use the ids, so a call goes on without them.
    if (!caller.ids.ParseFromArray(ids.data(), static_cast<int>(ids.size()))) caller.ids.Clear();
    caller.keys =
        std::make_shared<const telemetry::SharedKeys>(sent, telemetry::Attributes(share_keys(caller.ids, base_model_)));
    caller.trace = caller.keys->context();
    return caller;
  }

  EngineLoop& loop_;
  const std::string base_model_;
  std::atomic<Nanos> end_ = 0;  // of the worker, once it is known
  std::atomic<bool> is_asked_ = false;
  std::optional<KeptCalls> kept_;
  Preparations preparations_;
};

class GrpcServer final : public WorkerServer {
 public:
  GrpcServer(EngineLoop& loop, const ServerOptions& options)
      : service_(loop, options.base_model, options.kept_bytes_max) {
    grpc::ServerBuilder builder;
    if (!options.socket.empty()) {
      builder.AddListeningPort("unix:" + options.socket.string(), grpc::InsecureServerCredentials());
    }
    builder.SetMaxReceiveMessageSize(rpc::kMessageBytesMax);
    builder.SetMaxSendMessageSize(rpc::kMessageBytesMax);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~GrpcServer() override { shutdown(0); }

  void connect(int descriptor) override { grpc::AddInsecureChannelFromFd(server_.get(), descriptor); }
  size_t adapters() const override { return service_.adapters(); }
  bool drain(Nanos limit) override { return service_.drain(limit); }
  bool started() const { return server_ != nullptr; }

  void shutdown(Nanos grace) override {
    if (server_ == nullptr) return;
    service_.stop_preparing();  // its requests are answered now, and refused from now on
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::nanoseconds(grace));
    server_->Wait();
    server_.reset();
  }

 private:
  Service service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

Result<std::unique_ptr<WorkerServer>> start_server(EngineLoop& loop, const ServerOptions& options) {
  constexpr size_t kUnixPathMax = 107;  // sockaddr_un
  if (options.socket.native().size() > kUnixPathMax) {
    return invalid_argument("the socket path is longer than " + std::to_string(kUnixPathMax) + " bytes");
  }
  auto server = std::make_unique<GrpcServer>(loop, options);
  if (!server->started()) return internal_error("gRPC cannot serve " + options.socket.string() + "; see the log");
  return std::unique_ptr<WorkerServer>(std::move(server));
}

}  // namespace tuft::worker
