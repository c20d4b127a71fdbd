// Content types and content encodings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tuft::api {

enum class MediaType : uint8_t { kNone, kJson, kProtobuf, kOther };

// Returns the type that a Content-Type header names, ignoring case and parameters.
MediaType media_type(std::string_view content_type);

// Returns true if the Accept header contains application/x-protobuf, as the Tinker SDK tests it.
bool accepts_protobuf(std::string_view accept);

// Returns kUnsupportedMedia unless the header is absent, identity or zstd.
Status check_content_encoding(std::string_view content_encoding);

// The maximum size of a body, both as received and after decompression.
struct BodyLimit {
  int64_t bytes = 0;
  bool is_of_route = false;  // the limit of the route; false: limits.request_body_bytes_max
};
// Returns kPayloadTooLarge, naming the limit. `what` is, for instance, "request body".
Error body_too_large(const BodyLimit& limit, std::string_view what);

// Removes `content_encoding`, which check_content_encoding() has accepted. Returns kPayloadTooLarge as soon as the
// output exceeds the limit, and kInvalidArgument for damaged or truncated data.
Result<std::string> decode_body(std::string body, std::string_view content_encoding, const BodyLimit& limit);

}  // namespace tuft::api
