// tuft_otlp_sink: an OTLP/gRPC endpoint that takes everything and keeps nothing, so that exporting has somewhere live
// to go while something else is measured. Prints its address in one line; when its stdin closes it prints what came in,
// as JSON by method, and ends.
#include <atomic>
#include <iostream>
#include <map>
#include <mutex>
#include <string>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <nlohmann/json.hpp>

namespace tuft::bench {
namespace {

struct Received {
  int64_t requests = 0;
  int64_t bytes = 0;
};

class Counts {
 public:
  void add(const std::string& method, int64_t bytes) {
    const std::scoped_lock lock(mutex_);
    Received& received = methods_[method];
    ++received.requests;
    received.bytes += bytes;
  }
  nlohmann::json report() {
    const std::scoped_lock lock(mutex_);
    nlohmann::json all = nlohmann::json::object();
    for (const auto& [method, received] : methods_) {
      all[method] = {{"requests", received.requests}, {"bytes", received.bytes}};
    }
    return all;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Received> methods_;  // guarded by mutex_
};

// One call. An Export...ServiceResponse without fields is zero bytes, whatever the signal.
class Call final : public grpc::ServerGenericBidiReactor {
 public:
  Call(Counts& counts, std::string method) : counts_(counts), method_(std::move(method)) { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no message"));
    counts_.add(method_, static_cast<int64_t>(request_.Length()));
    StartWriteAndFinish(&response_, {}, grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  Counts& counts_;
  std::string method_;
  grpc::ByteBuffer request_;
  grpc::Slice nothing_{""};
  grpc::ByteBuffer response_{&nothing_, 1};
};

class Service final : public grpc::CallbackGenericService {
 public:
  explicit Service(Counts& counts) : counts_(counts) {}
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    return new Call(counts_, context->method());
  }

 private:
  Counts& counts_;
};

int serve() {
  Counts counts;
  Service service(counts);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&service);
  const auto server = builder.BuildAndStart();
  if (!server) {
    std::cerr << "tuft_otlp_sink: cannot listen\n";
    return 1;
  }
  std::cout << "http://127.0.0.1:" << port << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
  }
  server->Shutdown();
  std::cout << counts.report().dump() << std::endl;
  return 0;
}

}  // namespace
}  // namespace tuft::bench

int main() {
  try {
    return tuft::bench::serve();
  } catch (const std::exception& error) {
    std::cerr << "tuft_otlp_sink: " << error.what() << "\n";
    return 1;
  }
}
