// One HTTP connection, kept open between requests.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace tuft::bucket {

struct HttpRequest {
  std::string method;
  std::string url;
  std::vector<std::string> headers;  // "name: value"
  std::string_view body;
  size_t answer_bytes_max = 0;
  Nanos timeout = 0;
};

struct HttpAnswer {
  // Why there is no complete answer: "timeout", "connection_failed", "tls_failed", "network_error", "too_large" or
  // "cancelled"; empty: there is one.
  std::string_view failure = {};
  std::string detail = {};  // libcurl's words for operators
  long status = 0;
  std::map<std::string, std::string> headers = {};  // names in lower case
  std::string body = {};
};

// Redirects are not followed, because a request is signed for its host. One thread at a time.
class Connection {
 public:
  virtual ~Connection() = default;
  // Takes at most request.timeout; a transfer that all but stands still ends sooner.
  virtual HttpAnswer perform(const HttpRequest& request) = 0;
};

// `authorities` (PEM, empty: the machine's) and `end` must outlive it. Requests that run at the time `end` (of
// system_clock().monotonic()) fail within about a second with "cancelled". Returns null if there is no memory.
std::unique_ptr<Connection> make_connection(const std::string& authorities, const std::atomic<Nanos>& end);

}  // namespace tuft::bucket
