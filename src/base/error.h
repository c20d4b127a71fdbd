// Errors are values. A function that can fail for a reason outside the program returns Result<T>; a broken
// invariant of the program itself is TUFT_CHECK and aborts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tuft {

// A closed set, shaped like the canonical gRPC codes. Two tables map it to the outside, each one exhaustive
// switch: api/error_mapping (HTTP) and actor/ + worker/ (gRPC).
enum class ErrorCode : uint8_t {
  kInvalidArgument,     // the caller sent something wrong; sending it again cannot help
  kNotFound,            // no such thing, or none that the caller may see
  kAlreadyExists,       // the name is taken
  kFailedPrecondition,  // the thing is in a state that forbids it
  kUnauthenticated,     // no key
  kPermissionDenied,    // a key, but not the right
  kResourceExhausted,   // a named limit is reached
  kPayloadTooLarge,     // a body, frame or tensor is over its limit
  kUnsupportedMedia,    // content type or encoding that nobody here reads
  kDeadlineExceeded,    // it took longer than allowed
  kCancelled,           // the caller gave up
  kUnavailable,         // try again: a worker is starting, a store is away
  kGone,                // it was there and has been dropped
  kDataLoss,            // a file or a record is torn or foreign
  kUnimplemented,       // a well-formed request for something that this server does not do
  kInternal,            // our fault
};

// Stable lower-case name, e.g. "invalid_argument". Used in metrics and logs.
std::string_view error_code_name(ErrorCode code);

// True where repeating the same call later can succeed without anybody changing it.
bool is_retryable(ErrorCode code);

// True where the caller caused it (the SDK's category "user"); otherwise it is ours ("server").
bool is_user_error(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  // For people: what is wrong, where, and how to mend it. Never a prompt, a token id, a key or a server path.
  std::string message;
  // Stable word for programs and metrics within the code, e.g. "adapter_not_loaded". May be empty.
  std::string reason;
};

inline Error invalid_argument(std::string message, std::string reason = {}) {
  return {ErrorCode::kInvalidArgument, std::move(message), std::move(reason)};
}
inline Error not_found(std::string message, std::string reason = {}) {
  return {ErrorCode::kNotFound, std::move(message), std::move(reason)};
}
inline Error failed_precondition(std::string message, std::string reason = {}) {
  return {ErrorCode::kFailedPrecondition, std::move(message), std::move(reason)};
}
inline Error unavailable(std::string message, std::string reason = {}) {
  return {ErrorCode::kUnavailable, std::move(message), std::move(reason)};
}
inline Error data_loss(std::string message, std::string reason = {}) {
  return {ErrorCode::kDataLoss, std::move(message), std::move(reason)};
}
inline Error internal_error(std::string message, std::string reason = {}) {
  return {ErrorCode::kInternal, std::move(message), std::move(reason)};
}

}  // namespace tuft
