// Content types and content encodings of request bodies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tuft::api {

enum class MediaType : uint8_t { kNone, kJson, kProtobuf, kOther };

// Of a Content-Type header: case-insensitive, parameters ignored.
MediaType media_type(std::string_view content_type);

// A substring test, as the Tinker SDK's own.
bool accepts_protobuf(std::string_view accept);

// kUnsupportedMedia for anything but none, identity and zstd.
Status check_content_encoding(std::string_view content_encoding);

// How large a body may be, as it comes and decompressed.
struct BodyLimit {
  int64_t bytes = 0;
  bool is_of_route = false;  // the route takes no more; else limits.request_body_bytes_max
};
// kPayloadTooLarge, naming the limit. `what`: "request body".
Error body_too_large(const BodyLimit& limit, std::string_view what);

// Undoes `content_encoding` (checked before). kPayloadTooLarge as soon as more than the limit would come out, without
// making it; kInvalidArgument for damaged or truncated data.
Result<std::string> decode_body(std::string body, std::string_view content_encoding, const BodyLimit& limit);

}  // namespace tuft::api
