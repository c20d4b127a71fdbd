// tuft_otlp_sink [live|slow|hang|refuse|reject]: an OTLP/gRPC endpoint that discards what it receives, as the collector
// of a benchmark. live accepts everything; slow does so after a second; hang never answers; refuse returns UNAVAILABLE
// (try again), reject INVALID_ARGUMENT (do not). Prints its address in one line. When its stdin closes, it prints what
// it received, as JSON by method, and ends.
#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

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

enum class Mode { kLive, kSlow, kHang, kRefuse, kReject };

Mode parse_mode(const std::string& text) {
  static const std::map<std::string, Mode> modes = {{"live", Mode::kLive},
                                                    {"slow", Mode::kSlow},
                                                    {"hang", Mode::kHang},
                                                    {"refuse", Mode::kRefuse},
                                                    {"reject", Mode::kReject}};
  return modes.at(text);
}

// One call. An Export...ServiceResponse without fields has zero bytes for every signal.
class Call final : public grpc::ServerGenericBidiReactor {
 public:
  Call(Counts& counts, Mode mode, std::string method) : counts_(counts), mode_(mode), method_(std::move(method)) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no message"));
    counts_.add(method_, static_cast<int64_t>(request_.Length()));
    switch (mode_) {
      case Mode::kLive:
        return accept();
      case Mode::kSlow:
        return std::thread([this] {
                 std::this_thread::sleep_for(std::chrono::seconds(1));
                 accept();
               })
            .detach();
      case Mode::kHang:
        return;
      case Mode::kRefuse:
        return Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "refusing"));
      case Mode::kReject:
        return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "rejecting"));
    }
  }
  void OnCancel() override {
    if (mode_ == Mode::kHang) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  void accept() { StartWriteAndFinish(&response_, {}, grpc::Status::OK); }

  Counts& counts_;
  const Mode mode_;
  std::string method_;
  grpc::ByteBuffer request_;
  grpc::Slice nothing_{""};
  grpc::ByteBuffer response_{&nothing_, 1};
};

class Service final : public grpc::CallbackGenericService {
 public:
  Service(Counts& counts, Mode mode) : counts_(counts), mode_(mode) {}
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    return new Call(counts_, mode_, context->method());
  }

 private:
  Counts& counts_;
  const Mode mode_;
};

int serve(Mode mode) {
  Counts counts;
  Service service(counts, mode);
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
  server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
  std::cout << counts.report().dump() << std::endl;
  return 0;
}

}  // namespace
}  // namespace tuft::bench

int main(int argc, char** argv) {
  try {
    return tuft::bench::serve(tuft::bench::parse_mode(argc > 1 ? argv[1] : "live"));
  } catch (const std::exception& error) {
    std::cerr << "tuft_otlp_sink: " << error.what() << "\n";
    return 1;
  }
}
