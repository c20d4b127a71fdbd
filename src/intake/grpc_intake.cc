#include "intake/grpc_intake.h"

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include "base/file.h"
#include "intake/inflate.h"
#include "intake/listener.h"

namespace tuft::intake {
namespace {

using control::IntakeSignal;

constexpr size_t kReceivingBytesMax = size_t{64} << 20;
constexpr int kThreadsMax = 8;
constexpr int kCallsPerConnectionMax = 16;
constexpr int kMetadataBytesMax = 16 << 10;
constexpr int kIdleMilliseconds = 10 * 60 * 1000;
constexpr int kHandshakeMilliseconds = 10 * 1000;  // of TLS and HTTP/2
constexpr size_t kTlsFileMax = 1 << 20;
constexpr auto kStopGrace = std::chrono::milliseconds(200);

std::optional<IntakeSignal> signal_of(std::string_view method) {
  if (method == "/opentelemetry.proto.collector.trace.v1.TraceService/Export") return IntakeSignal::kTraces;
  if (method == "/opentelemetry.proto.collector.logs.v1.LogsService/Export") return IntakeSignal::kLogs;
  if (method == "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export") return IntakeSignal::kMetrics;
  return std::nullopt;
}

std::string_view header(const grpc::GenericCallbackServerContext& context, const char* name) {
  const auto found = context.client_metadata().find(name);
  return found == context.client_metadata().end() ? std::string_view()
                                                  : std::string_view(found->second.data(), found->second.size());
}

std::string_view key_of(const grpc::GenericCallbackServerContext& context) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view authorization = header(context, "authorization");
  if (authorization.starts_with(kBearer)) return authorization.substr(kBearer.size());
  return header(context, "x-api-key");
}

// Senders of OTLP repeat what failed with UNAVAILABLE; what cannot succeed soon must not have it.
grpc::StatusCode code_of(const Error& error) {
  if (error.reason == control::kIntakeRate || error.reason == control::kIntakeQueueFull) {
    return grpc::StatusCode::UNAVAILABLE;
  }
  switch (error.code) {
    case ErrorCode::kUnauthenticated:
    case ErrorCode::kPermissionDenied:
      return grpc::StatusCode::UNAUTHENTICATED;
    case ErrorCode::kResourceExhausted:
    case ErrorCode::kPayloadTooLarge:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case ErrorCode::kUnavailable:
      return grpc::StatusCode::FAILED_PRECONDITION;
    default:
      return grpc::StatusCode::INVALID_ARGUMENT;
  }
}

Result<std::string> text_of(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return invalid_argument("the message cannot be read", "invalid_otlp");
  std::string text;
  text.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return text;
}

// One call. Deletes itself when gRPC is done with it.
class Call final : public grpc::ServerGenericBidiReactor {
 public:
  Call(const grpc::GenericCallbackServerContext& context, const Authenticate& authenticate, control::Intake& intake)
      : intake_(intake) {
    const auto signal = signal_of(context.method());
    if (!signal) {
      Finish({grpc::StatusCode::UNIMPLEMENTED, "this port takes OTLP: the services for traces, logs and metrics"});
      return;
    }
    signal_ = *signal;
    Result<control::UserId> user = authenticate(key_of(context));
    if (!user.ok()) {
      fail(user.error());
      return;
    }
    user_ = std::move(user).value();
    if (const Status may = intake_.may_send(user_, signal_); !may.ok()) {
      fail(may.error());
      return;
    }
    StartRead(&message_);
  }

 private:
  // Whoever sends what becomes too large pays for the work that it made. Of many calls at once, those that the others
  // have used the rate up for make none.
  Result<std::string> decompressed(std::string message) {
    TUFT_TRY(intake_.may_send(user_, signal_));
    Result<std::string> request = inflated(std::move(message), static_cast<size_t>(intake_.body_bytes_max()));
    if (!request.ok()) intake_.charge_refused(user_, intake_.body_bytes_max());
    return request;
  }
  void fail(const Error& error) { Finish({code_of(error), error.message}); }

  void OnReadDone(bool ok) override {
    if (!ok) return fail(invalid_argument("the call had no message"));
    Result<std::string> request = text_of(message_);
    message_.Clear();
    if (request.ok() && is_deflated(*request)) request = decompressed(std::move(request).value());
    if (!request.ok()) return fail(request.error());
    const Result<std::string> answer = intake_.take(user_, signal_, std::move(request).value());
    if (!answer.ok()) return fail(answer.error());
    const grpc::Slice bytes(*answer);
    answer_ = grpc::ByteBuffer(&bytes, 1);
    StartWriteAndFinish(&answer_, {}, grpc::Status::OK);
  }
  void OnDone() override { delete this; }

  control::Intake& intake_;
  IntakeSignal signal_ = IntakeSignal::kTraces;
  control::UserId user_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer answer_;
};

class Service final : public grpc::CallbackGenericService {
 public:
  Service(Authenticate authenticate, control::Intake& intake)
      : authenticate_(std::move(authenticate)), intake_(intake) {}

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    return new Call(*context, authenticate_, intake_);
  }

  const Authenticate authenticate_;
  control::Intake& intake_;
};

Result<std::shared_ptr<grpc::ServerCredentials>> credentials_of(const config::TlsConfig& tls) {
  if (tls.certificate.empty()) return grpc::InsecureServerCredentials();
  TUFT_ASSIGN(std::string certificate, read_file(tls.certificate, kTlsFileMax));
  TUFT_ASSIGN(std::string key, read_file(tls.private_key, kTlsFileMax));
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({std::move(key), std::move(certificate)});
  return grpc::SslServerCredentials(options);
}

class Server final : public GrpcIntake {
 public:
  Server(Authenticate authenticate, control::Intake& intake)
      : intake_(intake), service_(std::move(authenticate), intake) {}
  ~Server() override { Server::stop(); }

  Status listen(const GrpcOptions& options) {
    TUFT_ASSIGN(const auto credentials, credentials_of(options.tls));
    TUFT_ASSIGN(listener_,
                Listener::open({.host = options.host, .port = options.port, .connections_max = kGrpcConnectionsMax}));
    grpc::ServerBuilder builder;
    grpc::ResourceQuota quota("tuft_intake");
    quota.Resize(kReceivingBytesMax).SetMaxThreads(kThreadsMax);
    builder.SetResourceQuota(quota);
    builder.SetMaxReceiveMessageSize(static_cast<int>(intake_.body_bytes_max()));
    // gRPC would decompress a message of any size before it looks at the limit.
    builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsPerConnectionMax);
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMilliseconds);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMilliseconds);
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return unavailable("gRPC cannot serve telemetry.intake.grpc_port; see the log");
    listener_->start([this](int socket) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.fd = socket;
      acceptor_->HandleNewConnection(&connection);
    });
    return {};
  }

  uint16_t port() const override { return listener_->port(); }

  void stop() override {
    if (server_ == nullptr) return;
    listener_->stop();
    server_->Shutdown(std::chrono::system_clock::now() + kStopGrace);
    server_->Wait();
    server_.reset();
  }

 private:
  control::Intake& intake_;
  Service service_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

Result<std::unique_ptr<GrpcIntake>> serve_grpc(const GrpcOptions& options, Authenticate authenticate,
                                               control::Intake& intake) {
  auto server = std::make_unique<Server>(std::move(authenticate), intake);
  TUFT_TRY(server->listen(options));
  return std::unique_ptr<GrpcIntake>(std::move(server));
}

}  // namespace tuft::intake
