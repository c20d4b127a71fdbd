// Writes the head of an HTTP/1.1 response.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "api/exchange.h"
#include "telemetry/context.h"

namespace tuft::api {

// Defines how the client recognizes the end of the body.
enum class Framing : uint8_t { kLength, kChunked, kUntilClose };

struct ResponseHead {
  std::string_view date;
  bool keep_alive = true;
  telemetry::SpanContext trace = {};  // the server span, sent as `traceresponse`
  Framing framing = Framing::kLength;
  int64_t length = 0;  // bytes, for kLength
};

// Returns false if the value of a header contains a control character, which could end the header or the head.
bool headers_are_valid(const Response& response);

void append_head(std::string& out, const Response& response, const ResponseHead& head);
// Returns what stands before a piece of `size` bytes, for kChunked.
std::string chunk_head(size_t size);

}  // namespace tuft::api
