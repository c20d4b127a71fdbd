#include "base/error.h"

#include <new>

namespace tuft {

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kAlreadyExists:
      return "already_exists";
    case ErrorCode::kFailedPrecondition:
      return "failed_precondition";
    case ErrorCode::kUnauthenticated:
      return "unauthenticated";
    case ErrorCode::kPermissionDenied:
      return "permission_denied";
    case ErrorCode::kResourceExhausted:
      return "resource_exhausted";
    case ErrorCode::kPayloadTooLarge:
      return "payload_too_large";
    case ErrorCode::kUnsupportedMedia:
      return "unsupported_media";
    case ErrorCode::kDeadlineExceeded:
      return "deadline_exceeded";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kGone:
      return "gone";
    case ErrorCode::kDataLoss:
      return "data_loss";
    case ErrorCode::kUnimplemented:
      return "unimplemented";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

bool is_retryable(ErrorCode code) {
  return code == ErrorCode::kResourceExhausted || code == ErrorCode::kDeadlineExceeded ||
         code == ErrorCode::kUnavailable;
}

Error out_of_memory() noexcept {
  constexpr const char* kReason = "out_of_memory";
  try {
    return internal_error("there was not enough memory for this request; try again later, or send a smaller one",
                          kReason);
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kInternal, "out of memory", kReason};  // short strings lie inside the object
  }
}

Error copy_of(const Error& error) noexcept {
  try {
    return error;
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

bool is_user_error(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kAlreadyExists:
    case ErrorCode::kFailedPrecondition:
    case ErrorCode::kUnauthenticated:
    case ErrorCode::kPermissionDenied:
    case ErrorCode::kResourceExhausted:
    case ErrorCode::kPayloadTooLarge:
    case ErrorCode::kUnsupportedMedia:
    case ErrorCode::kCancelled:
    case ErrorCode::kUnimplemented:
      return true;
    case ErrorCode::kDeadlineExceeded:
    case ErrorCode::kUnavailable:
    case ErrorCode::kGone:
    case ErrorCode::kDataLoss:
    case ErrorCode::kInternal:
      return false;
  }
  return false;
}

}  // namespace tuft
