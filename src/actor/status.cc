#include "actor/status.h"

#include <string>

namespace tuft::actor {
namespace {

constexpr ErrorCode kAllCodes[] = {ErrorCode::kInvalidArgument,
                                   ErrorCode::kNotFound,
                                   ErrorCode::kAlreadyExists,
                                   ErrorCode::kFailedPrecondition,
                                   ErrorCode::kUnauthenticated,
                                   ErrorCode::kPermissionDenied,
                                   ErrorCode::kResourceExhausted,
                                   ErrorCode::kPayloadTooLarge,
                                   ErrorCode::kUnsupportedMedia,
                                   ErrorCode::kDeadlineExceeded,
                                   ErrorCode::kCancelled,
                                   ErrorCode::kUnavailable,
                                   ErrorCode::kGone,
                                   ErrorCode::kDataLoss,
                                   ErrorCode::kUnimplemented,
                                   ErrorCode::kInternal};

std::string trailing(const grpc::ClientContext& context, const char* key) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(key);
  return found == metadata.end() ? std::string() : std::string(found->second.data(), found->second.size());
}

ErrorCode error_code(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::INVALID_ARGUMENT:
      return ErrorCode::kInvalidArgument;
    case grpc::StatusCode::NOT_FOUND:
      return ErrorCode::kNotFound;
    case grpc::StatusCode::ALREADY_EXISTS:
      return ErrorCode::kAlreadyExists;
    case grpc::StatusCode::FAILED_PRECONDITION:
      return ErrorCode::kFailedPrecondition;
    case grpc::StatusCode::UNAUTHENTICATED:
      return ErrorCode::kUnauthenticated;
    case grpc::StatusCode::PERMISSION_DENIED:
      return ErrorCode::kPermissionDenied;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return ErrorCode::kResourceExhausted;
    case grpc::StatusCode::OUT_OF_RANGE:
      return ErrorCode::kPayloadTooLarge;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return ErrorCode::kDeadlineExceeded;
    case grpc::StatusCode::CANCELLED:
      return ErrorCode::kCancelled;
    case grpc::StatusCode::UNAVAILABLE:
      return ErrorCode::kUnavailable;
    case grpc::StatusCode::ABORTED:
      return ErrorCode::kUnavailable;
    case grpc::StatusCode::DATA_LOSS:
      return ErrorCode::kDataLoss;
    case grpc::StatusCode::UNIMPLEMENTED:
      return ErrorCode::kUnimplemented;
    case grpc::StatusCode::INTERNAL:
      return ErrorCode::kInternal;
    case grpc::StatusCode::UNKNOWN:
      return ErrorCode::kInternal;
    case grpc::StatusCode::OK:
    case grpc::StatusCode::DO_NOT_USE:
      break;
  }
  return ErrorCode::kInternal;
}

}  // namespace

std::optional<Error> from_grpc(const grpc::Status& status, const grpc::ClientContext& context) {
  const std::string name = trailing(context, "tuft-code");
  for (const ErrorCode code : kAllCodes) {
    if (error_code_name(code) == name) return Error{code, status.error_message(), trailing(context, "tuft-reason")};
  }
  const ErrorCode code = error_code(status.error_code());
  if (code == ErrorCode::kUnavailable) return std::nullopt;
  if (code == ErrorCode::kDeadlineExceeded) {
    return Error{code, "the worker did not answer within the call's time limit", "worker_timeout"};
  }
  return Error{code, status.error_message(), "worker_rpc_failed"};
}

}  // namespace tuft::actor
