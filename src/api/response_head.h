// The head of an HTTP/1.1 response as text.
#pragma once

#include <string>
#include <string_view>

#include "api/exchange.h"
#include "telemetry/context.h"

namespace tuft::api {

struct ResponseHead {
  std::string_view date;
  bool keep_alive = true;
  telemetry::SpanContext trace = {};  // of the server span: goes out as `traceresponse`
};

void append_head(std::string& out, const Response& response, const ResponseHead& head);

}  // namespace tuft::api
