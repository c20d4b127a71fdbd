#include <atomic>
#include <chrono>
#include <exception>
#include <utility>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "base/mutex.h"
#include "telemetry/otlp/exporters.h"
#include "telemetry/otlp/response.h"

namespace tuft::telemetry::internal::otlp {
namespace {

constexpr int kFirstReconnectMs = 250;
constexpr int kReconnectMsMax = 5000;
constexpr int kGrpcResponseBytesMax = 1 << 20;

const char* method_of(Signal signal) {
  switch (signal) {
    case Signal::kTraces:
      return "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    case Signal::kLogs:
      return "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
    case Signal::kMetrics:
      return "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
  }
  return "";
}

// The names that OpenTelemetry's conventions give to rpc.response.status_code.
const char* code_name(grpc::StatusCode code) {
  static constexpr const char* kNames[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  const auto index = static_cast<size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "UNKNOWN";
}

// The retryable codes of the OTLP specification.
bool is_retryable(grpc::StatusCode code, bool has_retry_info) {
  switch (code) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return has_retry_info;
    default:
      return false;
  }
}

std::string to_string(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string out;
  if (!buffer.Dump(&slices).ok()) return out;
  for (const grpc::Slice& slice : slices) out.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return out;
}

ExportResult read_failure(const grpc::Status& status) {
  const StatusDetails details = read_status(status.error_details());
  ExportResult result;
  result.outcome = is_retryable(status.error_code(), details.has_retry_info) ? ExportResult::Outcome::kRetry
                                                                             : ExportResult::Outcome::kRefused;
  result.retry_after = details.retry_after;
  result.error_type = code_name(status.error_code());
  result.message = result.error_type + ": " + message_for_people(status.error_message());
  return result;
}

ExportResult read_answer(const grpc::ByteBuffer& response) {
  PartialSuccess partial = read_partial_success(to_string(response));
  ExportResult result;
  result.rejected = partial.rejected;
  result.message = std::move(partial.message);
  return result;
}

ExportResult cancelled() {
  return {.outcome = ExportResult::Outcome::kRetry, .error_type = "CANCELLED", .message = "cancelled by the shutdown"};
}

// A unary call of bytes on its own completion queue. It does not use gRPC's callback threads, which version 1.51 stops
// and restarts with a race.
class GrpcExporter final : public Exporter {
 public:
  GrpcExporter(Signal signal, const SignalSettings& settings, const std::shared_ptr<grpc::Channel>& channel)
      : method_(method_of(signal)),
        timeout_(settings.export_timeout),
        headers_(settings.headers.begin(), settings.headers.end()),
        gzip_(settings.compression == Compression::kGzip),
        stub_(channel) {}
  ~GrpcExporter() override {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }
  GrpcExporter(const GrpcExporter&) = delete;
  GrpcExporter& operator=(const GrpcExporter&) = delete;

  ExportResult send(std::string_view request) override {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::nanoseconds(timeout_));
    for (const auto& [key, value] : headers_) context.AddMetadata(key, value);
    if (gzip_) context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    {
      MutexLock lock(mutex_);
      if (cancelled_) return cancelled();
      running_ = &context;
    }
    grpc::Status status;
    grpc::ByteBuffer response;
    // Copied, because the transport may still use it after a cancelled call.
    const grpc::Slice slice(request.data(), request.size());
    const grpc::ByteBuffer body(&slice, 1);
    const auto call = stub_.PrepareUnaryCall(&context, method_, body, &queue_);
    call->StartCall();
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue_.Next(&tag, &ok);
    {
      MutexLock lock(mutex_);
      running_ = nullptr;
      if (cancelled_ && !status.ok()) return cancelled();
    }
    return status.ok() ? read_answer(response) : read_failure(status);
  }

  void cancel() override {
    MutexLock lock(mutex_);
    cancelled_ = true;
    if (running_ != nullptr) running_->TryCancel();
  }

 private:
  const std::string method_;
  const Nanos timeout_;
  const std::vector<std::pair<std::string, std::string>> headers_;
  const bool gzip_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;

  Mutex mutex_;
  bool cancelled_ TUFT_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* running_ TUFT_GUARDED_BY(mutex_) = nullptr;
};

Result<std::shared_ptr<grpc::ChannelCredentials>> make_credentials(const SignalSettings& settings) {
  if (!settings.tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  if (!settings.ca_file.empty()) {
    TUFT_ASSIGN(options.pem_root_certs, read_credential("the CA certificate", settings.ca_file));
  }
  if (!settings.certificate_file.empty()) {
    TUFT_ASSIGN(options.pem_cert_chain, read_credential("the client certificate", settings.certificate_file));
  }
  if (!settings.key_file.empty()) {
    TUFT_ASSIGN(options.pem_private_key, read_credential("the client key", settings.key_file));
  }
  return grpc::SslCredentials(options);
}

}  // namespace

Result<std::unique_ptr<Exporter>> make_grpc_exporter(Signal signal, const SignalSettings& settings) {
  TUFT_ASSIGN(const std::shared_ptr<grpc::ChannelCredentials> credentials, make_credentials(settings));
  grpc::ChannelArguments arguments;
  // The pipeline retries, because it knows about shutdowns.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMsMax);
  arguments.SetMaxReceiveMessageSize(kGrpcResponseBytesMax);
  arguments.SetUserAgentPrefix("tuft-telemetry/" TUFT_VERSION);
  try {
    return std::unique_ptr<Exporter>(std::make_unique<GrpcExporter>(
        signal, settings, grpc::CreateCustomChannel(settings.endpoint, credentials, arguments)));
  } catch (const std::exception& problem) {
    return internal_error(std::string("the OTLP exporter could not be created: ") + problem.what());
  }
}

}  // namespace tuft::telemetry::internal::otlp
