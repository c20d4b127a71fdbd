// Signs requests to a bucket, sends them, and tries again what can succeed later.
#pragma once

#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "bucket/connection.h"
#include "bucket/settings.h"

namespace tuft::bucket {

struct S3Request {
  std::string_view operation;  // of metrics::bucket(): "put", "get", "list", "delete"
  std::string_view method;
  std::string key;  // with the prefix; empty: the bucket itself
  std::map<std::string, std::string> query = {};
  std::map<std::string, std::string> headers = {};  // names in lower case; all are signed
  std::string_view body = {};
  size_t answer_bytes_max = 1 << 20;
};

// Thread-safe. Each call uses a connection of its own as long as it runs; idle ones are kept for the next call.
class Requests {
 public:
  explicit Requests(const Settings& settings);

  // Returns an answer with the status 2xx. All requests of this module may be sent twice. Tries again with growing
  // pauses, for settings.timeout in all. After that failed, requests have a tenth of that time until one succeeds or
  // the time has passed, so that what waits in a line for a bucket that is away is told soon. Errors are those of
  // bucket.h, where 404 is kNotFound.
  Result<HttpAnswer> send(const S3Request& request);
  // See Bucket.
  void cancel(Nanos grace);

 private:
  HttpAnswer send_once(const S3Request& request, Nanos timeout);
  std::unique_ptr<Connection> take_connection();
  void give_back(std::unique_ptr<Connection> connection);
  // Returns false if it was cancelled.
  bool pause(Nanos duration) TUFT_EXCLUDES(mutex_);

  const Settings& settings_;
  const std::string host_;  // as the header Host has it
  const std::string base_url_;
  std::atomic<Nanos> end_{std::numeric_limits<Nanos>::max()};  // of all requests; monotonic
  std::atomic<Nanos> away_until_{0};                           // monotonic; the past: it may answer
  Mutex mutex_;
  CondVar woken_;
  std::vector<std::unique_ptr<Connection>> idle_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::bucket
