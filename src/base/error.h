// Errors are values. A function that can fail for a reason outside the program returns Result<T>; a broken
// invariant of the program itself is TUFT_CHECK and aborts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tuft {

// The codes follow the canonical codes of gRPC. openai/errors.cc maps them to HTTP, rpc/status.h to gRPC.
enum class ErrorCode : uint8_t {
  kInvalidArgument,     // the request is wrong; repeating it cannot help
  kNotFound,            // it does not exist, or the caller may not see it
  kAlreadyExists,       // the name is taken
  kFailedPrecondition,  // the state of the object forbids it
  kUnauthenticated,     // the request has no key
  kPermissionDenied,    // the key does not grant access
  kResourceExhausted,   // a named limit is reached
  kPayloadTooLarge,     // a body, frame or tensor is over its limit
  kUnsupportedMedia,    // the content type or encoding is not supported
  kDeadlineExceeded,    // it took longer than allowed
  kCancelled,           // the caller gave up
  kUnavailable,         // temporary: a worker is starting, a store cannot be reached
  kGone,                // it existed and was dropped
  kDataLoss,            // a file or record is damaged or not ours
  kUnimplemented,       // the request is valid, but this server does not support it
  kInternal,            // a bug or failure of the server
};

// Returns a stable name in lower case, e.g. "invalid_argument", as used in metrics and logs.
std::string_view error_code_name(ErrorCode code);

// Returns true if the same call can succeed later without being changed.
bool is_retryable(ErrorCode code);

// Returns true if the caller caused the error (the SDK's category "user"), false if the server did ("server").
bool is_user_error(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  // Says what is wrong, where, and how to fix it. Never contains a prompt, token id, key or path of the server.
  std::string message;
  // A stable word for programs and metrics, e.g. "adapter_not_loaded". May be empty.
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

// The error of an operation for which there was no memory. Needs no memory itself if there is none.
Error out_of_memory() noexcept;
// Returns a copy of the error, or out_of_memory() where there is no memory for it.
Error copy_of(const Error& error) noexcept;

}  // namespace tuft
