#include "worker/service.h"

#include <chrono>
#include <unistd.h>

#include <grpcpp/grpcpp.h>

#include "telemetry/exposition.h"
#include "telemetry/span_archive.h"
#include "telemetry/tail_sampler.h"
#include "tuft/worker/v1/model_actor.grpc.pb.h"
#include "worker/conversion.h"
#include "worker/sample_stream.h"
#include "worker/sample_trace.h"
#include "worker/status.h"

namespace tuft::worker {
namespace {

constexpr int kMessageBytesMax = 256 << 20;

// One call that the engine loop finishes. Deletes itself when gRPC is done with it.
class PendingCall final : public grpc::ServerUnaryReactor {
 public:
  explicit PendingCall(grpc::CallbackServerContext& context) : context_(context) {}

  // Set before the call is handed on: a cancel can come at any time after.
  void on_cancel(std::function<void()> cancel) { cancel_ = std::move(cancel); }
  void finish(const Status& status) { Finish(status.ok() ? grpc::Status::OK : to_grpc(status.error(), context_)); }

 private:
  void OnCancel() override {
    if (cancel_) cancel_();
  }
  void OnDone() override { delete this; }

  grpc::CallbackServerContext& context_;
  std::function<void()> cancel_;
};

// Messages of a call live until it is finished, so the reply is written where gRPC will read it.
template <typename Response>
Reply<Response> reply_into(PendingCall* call, Response* response) {
  return [call, response](Result<Response> result) {
    if (!result.ok()) {
      call->finish(std::move(result).error());
      return;
    }
    *response = std::move(result).value();
    call->finish({});
  };
}

class Service final : public v1::ModelActor::CallbackService {
 public:
  Service(EngineLoop& loop, std::string base_model) : loop_(loop), base_model_(std::move(base_model)) {}

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context, const v1::DescribeRequest*,
                                     v1::DescribeResponse* response) override {
    const engine::ModelSpec& model = loop_.engine().model();
    response->set_architecture(model.architecture);
    response->set_parameters(model.parameters());
    response->set_vocab_size(model.vocab_size);
    response->set_max_position(model.max_position);
    response->set_weights_dtype(std::string(loop_.engine().weights_dtype()));
    response->set_steps(loop_.steps());
    response->set_pid(getpid());
    return answer(*context);
  }

  grpc::ServerUnaryReactor* CreateAdapter(grpc::CallbackServerContext* context, const v1::CreateAdapterRequest* request,
                                          v1::CreateAdapterResponse* response) override {
    return post(make_create_adapter, context, request, response);
  }
  grpc::ServerUnaryReactor* RemoveAdapter(grpc::CallbackServerContext* context, const v1::RemoveAdapterRequest* request,
                                          v1::RemoveAdapterResponse* response) override {
    return post(make_remove_adapter, context, request, response);
  }
  grpc::ServerUnaryReactor* OptimStep(grpc::CallbackServerContext* context, const v1::OptimStepRequest* request,
                                      v1::OptimStepResponse* response) override {
    return post(make_optim_step, context, request, response);
  }
  grpc::ServerUnaryReactor* SaveState(grpc::CallbackServerContext* context, const v1::SaveStateRequest* request,
                                      v1::SaveStateResponse* response) override {
    return post(make_save_state, context, request, response);
  }
  grpc::ServerUnaryReactor* LoadState(grpc::CallbackServerContext* context, const v1::LoadStateRequest* request,
                                      v1::LoadStateResponse* response) override {
    return post(make_load_state, context, request, response);
  }
  grpc::ServerUnaryReactor* AddSampler(grpc::CallbackServerContext* context, const v1::AddSamplerRequest* request,
                                       v1::AddSamplerResponse* response) override {
    return post(make_add_sampler, context, request, response);
  }
  grpc::ServerUnaryReactor* RemoveSampler(grpc::CallbackServerContext* context, const v1::RemoveSamplerRequest* request,
                                          v1::RemoveSamplerResponse* response) override {
    return post(make_remove_sampler, context, request, response);
  }

  grpc::ServerUnaryReactor* PublishAdapter(grpc::CallbackServerContext* context,
                                           const v1::PublishAdapterRequest* request,
                                           v1::PublishAdapterResponse* response) override {
    return post(make_publish_adapter, context, request, response);
  }
  grpc::ServerUnaryReactor* SaveSampler(grpc::CallbackServerContext* context, const v1::SaveSamplerRequest* request,
                                        v1::SaveSamplerResponse* response) override {
    return post(make_save_sampler, context, request, response);
  }

  grpc::ServerUnaryReactor* CollectMetrics(grpc::CallbackServerContext* context, const v1::CollectMetricsRequest*,
                                           v1::CollectMetricsResponse* response) override {
    response->set_snapshot(telemetry::metrics_snapshot());
    return answer(*context);
  }
  grpc::ServerUnaryReactor* KeepTraces(grpc::CallbackServerContext* context, const v1::KeepTracesRequest* request,
                                       v1::KeepTracesResponse*) override {
    std::vector<telemetry::TraceId> traces;
    traces.reserve(static_cast<size_t>(request->traces_size()));
    for (const v1::TraceId& trace : request->traces()) traces.push_back({trace.high(), trace.low()});
    telemetry::keep_traces(std::move(traces));
    return answer(*context);
  }

  grpc::ServerUnaryReactor* CollectTraces(grpc::CallbackServerContext* context, const v1::CollectTracesRequest* request,
                                          v1::CollectTracesResponse* response) override {
    std::vector<telemetry::TraceId> traces;
    traces.reserve(static_cast<size_t>(request->traces_size()));
    for (const v1::TraceId& trace : request->traces()) traces.push_back({trace.high(), trace.low()});
    response->set_spans(telemetry::archived_spans(traces, static_cast<size_t>(request->bytes_max())));
    return answer(*context);
  }

  grpc::ServerUnaryReactor* ForwardBackward(grpc::CallbackServerContext* context,
                                            const v1::ForwardBackwardRequest* request,
                                            v1::ForwardBackwardResponse* response) override {
    auto* call = new PendingCall(*context);
    auto converted = to_train_request(request->request(), training_adapter(request->adapter_id()), base_model_);
    if (!converted.ok()) {
      call->finish(std::move(converted).error());
    } else {
      converted->tenant = request->tenant();
      loop_.post(make_forward_backward(request->adapter_id(), std::move(converted).value(), caller(*context),
                                       reply_into(call, response)));
    }
    return call;
  }

  grpc::ServerUnaryReactor* Sample(grpc::CallbackServerContext* context, const v1::SampleRequest* request,
                                   v1::SampleResponse* response) override {
    auto* call = new PendingCall(*context);
    const EngineLoop::Ticket ticket = loop_.next_ticket();
    call->on_cancel([this, ticket] { loop_.cancel_sample(ticket); });
    run_sample(*context, *request, ticket, {}, reply_into(call, response));
    return call;
  }

  grpc::ServerWriteReactor<v1::SampleDelta>* StreamSample(grpc::CallbackServerContext* context,
                                                          const v1::SampleRequest* request) override {
    auto* stream = new SampleStream(*context);
    const EngineLoop::Ticket ticket = loop_.next_ticket();
    stream->on_cancel([this, ticket] { loop_.cancel_sample(ticket); });
    run_sample(
        *context, *request, ticket,
        [stream](int sample, auto tokens, auto logprobs, auto topk) { stream->add(sample, tokens, logprobs, topk); },
        [stream](Result<v1::SampleResponse> result) { stream->end(std::move(result)); });
    return stream;
  }

 private:
  void run_sample(const grpc::CallbackServerContext& context, const v1::SampleRequest& request,
                  EngineLoop::Ticket ticket, engine::OnTokens on_tokens, Reply<v1::SampleResponse> reply) {
    std::optional<engine::AdapterId> sampler;
    if (!request.sampler_id().empty()) sampler = sampler_adapter(request.sampler_id());
    auto converted = to_sample_request(request, std::move(sampler));
    if (!converted.ok()) return reply(std::move(converted).error());
    SampleFacts facts = facts_of(*converted, request.sampler_id());
    const Caller who = caller(context);
    converted->arrived = who.arrived;
    converted->trace = who.trace;
    converted->on_tokens = std::move(on_tokens);
    log_sample_begin(who, facts, base_model_);
    const int topk = request.topk_prompt_logprobs();
    loop_.post_sample(ticket, std::move(converted).value(),
                      [this, reply = std::move(reply), facts, topk, who](auto result) mutable {
                        Result<v1::SampleResponse> response = v1::SampleResponse();
                        if (result.ok()) {
                          // A refusal comes on this call's thread, where the ranks are not to be read.
                          facts.lora_rank = loop_.rank_of(sampler_adapter(facts.sampler_id));
                          to_sample_response(*result, facts.prompt_tokens, topk, &*response);
                        }
                        record_sample(who, facts, base_model_, result, loop_.clock().monotonic());
                        if (!result.ok()) response = std::move(result).error();
                        reply(std::move(response));
                      });
  }

  static grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext& context) {
    auto* call = new PendingCall(context);
    call->finish({});
    return call;
  }

  template <typename Make, typename Request, typename Response>
  grpc::ServerUnaryReactor* post(Make make, grpc::CallbackServerContext* context, const Request* request,
                                 Response* response) {
    auto* call = new PendingCall(*context);
    loop_.post(make(*request, caller(*context), reply_into(call, response)));
    return call;
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
    caller.trace = telemetry::extract(header, telemetry::Peer::kOwnProcess);
    const std::string_view ids = header("tuft-ids-bin");
    // Ids are for spans and logs only: without them the call goes on all the same.
    if (!caller.ids.ParseFromArray(ids.data(), static_cast<int>(ids.size()))) caller.ids.Clear();
    return caller;
  }

  EngineLoop& loop_;
  const std::string base_model_;
};

class GrpcServer final : public WorkerServer {
 public:
  GrpcServer(EngineLoop& loop, const ServerOptions& options) : service_(loop, options.base_model) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + options.socket.string(), grpc::InsecureServerCredentials());
    builder.SetMaxReceiveMessageSize(kMessageBytesMax);
    builder.SetMaxSendMessageSize(kMessageBytesMax);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~GrpcServer() override { shutdown(0); }

  bool listening() const { return server_ != nullptr; }

  void shutdown(Nanos grace) override {
    if (server_ == nullptr) return;
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
  if (!server->listening()) return internal_error("cannot listen on " + options.socket.string());
  return std::unique_ptr<WorkerServer>(std::move(server));
}

}  // namespace tuft::worker
