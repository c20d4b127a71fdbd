// The head of an HTTP/1.1 response as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/exchange.h"
#include "telemetry/context.h"

namespace tuft::api {

// How the end of the body is told.
enum class Framing : uint8_t { kLength, kChunked, kUntilClose };

struct ResponseHead {
  std::string_view date;
  bool keep_alive = true;
  telemetry::SpanContext trace = {};  // of the server span: goes out as `traceresponse`
  Framing framing = Framing::kLength;
  int64_t length = 0;  // of kLength
};

// False where a header's value holds a control character, which could end the header or the head.
bool headers_are_valid(const Response& response);

void append_head(std::string& out, const Response& response, const ResponseHead& head);

}  // namespace tuft::api
