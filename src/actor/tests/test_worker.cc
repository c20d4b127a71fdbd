// The worker process of the supervisor's tests. It implements the protocol and misbehaves on request.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <signal.h>
#include <string>
#include <sys/prctl.h>
#include <unistd.h>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "tuft/worker/v1/model_actor.grpc.pb.h"

namespace {

namespace v1 = tuft::worker::v1;

// Dies, and leaves a process that keeps its connections open for a while, but not its output.
void leave_heir() {
  if (fork() == 0) {
    for (int fd = 0; fd < 3; ++fd) close(fd);
    alarm(60);
    for (;;) pause();
  }
  raise(SIGKILL);
}

class Service final : public v1::ModelActor::CallbackService {
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context, const v1::DescribeRequest*,
                                     v1::DescribeResponse* response) override {
    response->set_pid(getpid());
    if (draining) response->set_drain_milliseconds(60'000);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  // The request's sampler_id selects the behaviour. `response` gets the data that the test asks for.
  grpc::ServerUnaryReactor* Sample(grpc::CallbackServerContext* context, const v1::SampleRequest* request,
                                   v1::SampleResponse* response) override {
    auto* reactor = context->DefaultReactor();
    const std::string& what = request->sampler_id();
    if (what == "hang") return reactor;
    if (what == "kill") raise(SIGKILL);
    if (what == "heir") leave_heir();
    if (what == "time limit") {
      response->set_output_tokens(context->deadline() == std::chrono::system_clock::time_point::max() ? 0 : 1);
    }
    if (what == "exit") _exit(7);
    if (what == "gone") {
      context->AddTrailingMetadata("tuft-code", "gone");
      context->AddTrailingMetadata("tuft-reason", "sampler_removed");
      reactor->Finish({grpc::StatusCode::NOT_FOUND, "it was there"});
      return reactor;
    }
    if (what == "stopping") {
      context->AddTrailingMetadata("tuft-code", "unavailable");
      context->AddTrailingMetadata("tuft-reason", "worker_stopping");
      reactor->Finish({grpc::StatusCode::UNAVAILABLE, "the worker is stopping"});
      return reactor;
    }
    if (what == "trace") {
      const auto found = context->client_metadata().find("traceparent");
      if (found != context->client_metadata().end()) {
        const std::string header(found->second.data(), found->second.size());
        response->set_response(header);
      }
    }
    if (what == "ids") {
      const auto found = context->client_metadata().find("tuft-ids-bin");
      v1::CallIds ids;
      if (found != context->client_metadata().end()) {
        ids.ParseFromArray(found->second.data(), static_cast<int>(found->second.size()));
      }
      response->set_response(ids.session_id());
    }
    if (what == "traceparent flag") response->set_response(traceparent);
    if (what == "kept traces") {
      for (const v1::TraceId& trace : kept_) {
        response->set_response(std::to_string(trace.high()) + "/" + std::to_string(trace.low()));
      }
    }
    // Larger than gRPC's default limit of 4 MiB.
    if (what == "large") response->set_response(std::string(5 << 20, 'x'));
    if (what == "descriptors") {
      int open = 0;
      for (const bool was_open : inherited) open += was_open ? 1 : 0;
      response->set_output_tokens(open);
    }
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* CollectMetrics(grpc::CallbackServerContext* context, const v1::CollectMetricsRequest*,
                                           v1::CollectMetricsResponse* response) override {
    response->set_snapshot("a snapshot");
    auto* reactor = context->DefaultReactor();
    if (!silent) reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* CollectTraces(grpc::CallbackServerContext* context, const v1::CollectTracesRequest* request,
                                          v1::CollectTracesResponse* response) override {
    response->set_spans(std::to_string(request->traces(0).high()) + "/" + std::to_string(request->bytes_max()));
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* KeepTraces(grpc::CallbackServerContext* context, const v1::KeepTracesRequest* request,
                                       v1::KeepTracesResponse*) override {
    kept_.assign(request->traces().begin(), request->traces().end());
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  std::vector<v1::TraceId> kept_;

 public:
  static inline std::string traceparent;
  static inline bool silent = false;        // CollectMetrics is never answered
  static inline bool draining = false;      // it says that it was told to end
  static inline bool inherited[1024] = {};  // descriptors that were open before main() opened anything
};

}  // namespace

int main(int argc, char** argv) {
  for (int fd = 3; fd < 1024; ++fd) Service::inherited[fd] = lseek(fd, 0, SEEK_CUR) != -1 || errno == ESPIPE;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string socket;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--exit-at-once") return 3;
    if (argument == "--ignore-sigterm") signal(SIGTERM, SIG_IGN);
    if (argument == "--never-ready") {
      for (;;) pause();
    }
    if (argument == "--silent") Service::silent = true;
    if (argument == "--draining") Service::draining = true;
    if (argument == "--traceparent" && i + 1 < argc) Service::traceparent = argv[i + 1];
    if (argument == "--socket" && i + 1 < argc) socket = argv[i + 1];
  }
  Service service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  if (server == nullptr) return 4;
  for (;;) pause();
}
