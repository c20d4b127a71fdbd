#include "rpc/status.h"

#include <string>

namespace tuft::rpc {
namespace {

constexpr const char* kCodeMetadata = "tuft-code";
constexpr const char* kReasonMetadata = "tuft-reason";

grpc::StatusCode grpc_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupportedMedia:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case ErrorCode::kNotFound:
    case ErrorCode::kGone:
      return grpc::StatusCode::NOT_FOUND;
    case ErrorCode::kAlreadyExists:
      return grpc::StatusCode::ALREADY_EXISTS;
    case ErrorCode::kFailedPrecondition:
      return grpc::StatusCode::FAILED_PRECONDITION;
    case ErrorCode::kUnauthenticated:
      return grpc::StatusCode::UNAUTHENTICATED;
    case ErrorCode::kPermissionDenied:
      return grpc::StatusCode::PERMISSION_DENIED;
    case ErrorCode::kResourceExhausted:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case ErrorCode::kPayloadTooLarge:
      return grpc::StatusCode::OUT_OF_RANGE;
    case ErrorCode::kDeadlineExceeded:
      return grpc::StatusCode::DEADLINE_EXCEEDED;
    case ErrorCode::kCancelled:
      return grpc::StatusCode::CANCELLED;
    case ErrorCode::kUnavailable:
      return grpc::StatusCode::UNAVAILABLE;
    case ErrorCode::kDataLoss:
      return grpc::StatusCode::DATA_LOSS;
    case ErrorCode::kUnimplemented:
      return grpc::StatusCode::UNIMPLEMENTED;
    case ErrorCode::kInternal:
      return grpc::StatusCode::INTERNAL;
  }
  return grpc::StatusCode::INTERNAL;
}

// Returns the first code that `matches`, or kInternal, the last one.
template <typename Matches>
ErrorCode find_code(Matches&& matches) {
  for (uint8_t i = 0; i < static_cast<uint8_t>(ErrorCode::kInternal); ++i) {
    if (matches(static_cast<ErrorCode>(i))) return static_cast<ErrorCode>(i);
  }
  return ErrorCode::kInternal;
}

std::string trailing(const grpc::ClientContext& context, const char* key) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(key);
  return found == metadata.end() ? std::string() : std::string(found->second.data(), found->second.size());
}

}  // namespace

grpc::Status to_grpc(const Error& error, grpc::ServerContextBase& context) {
  context.AddTrailingMetadata(kCodeMetadata, std::string(error_code_name(error.code)));
  if (!error.reason.empty()) context.AddTrailingMetadata(kReasonMetadata, error.reason);
  return {grpc_code(error.code), error.message};
}

std::optional<Error> from_grpc(const grpc::Status& status, const grpc::ClientContext& context) {
  if (const std::string name = trailing(context, kCodeMetadata); !name.empty()) {
    const ErrorCode code = find_code([&](ErrorCode one) { return error_code_name(one) == name; });
    return Error{code, status.error_message(), trailing(context, kReasonMetadata)};
  }
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE || status.error_code() == grpc::StatusCode::ABORTED) {
    return std::nullopt;
  }
  const ErrorCode code = find_code([&](ErrorCode one) { return grpc_code(one) == status.error_code(); });
  if (code == ErrorCode::kDeadlineExceeded) {
    return Error{code, "the worker did not answer within the call's time limit", "worker_timeout"};
  }
  return Error{code, status.error_message(), "worker_rpc_failed"};
}

}  // namespace tuft::rpc
