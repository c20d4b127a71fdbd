// An OTLP/HTTP collector for tests. It accepts requests on a free port of 127.0.0.1 (over TLS if files are given),
// keeps them, and sends the configured answer.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "telemetry/testing/tls_files.h"

namespace tuft::telemetry::testing {

struct HttpRequest {
  std::string path;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // as sent, e.g. compressed
};

struct HttpAnswer {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/x-protobuf";
  std::vector<std::string> headers = {};  // "Name: value"
  bool hang = false;                      // no answer until the receiver ends
};

// Thread-safe.
class HttpReceiver {
 public:
  explicit HttpReceiver(const TlsFiles* tls = nullptr);
  ~HttpReceiver();
  HttpReceiver(const HttpReceiver&) = delete;
  HttpReceiver& operator=(const HttpReceiver&) = delete;

  std::string endpoint() const;  // "http://127.0.0.1:port", or https
  // Sets the answer to all further requests.
  void set_answer(HttpAnswer answer);
  std::vector<HttpRequest> requests() const;
  bool wait_for_requests(size_t count, std::chrono::milliseconds timeout = std::chrono::seconds(20)) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Decompresses the result of gzip().
std::string gunzip(const std::string& bytes);

}  // namespace tuft::telemetry::testing
