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

// Undoes `content_encoding` (checked before). kPayloadTooLarge as soon as more than size_bytes_max would come out,
// without making it; kInvalidArgument for damaged or truncated data.
Result<std::string> decode_body(std::string body, std::string_view content_encoding, int64_t size_bytes_max);

}  // namespace tuft::api
