#include "bucket/requests.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/id.h"
#include "bucket/answers.h"
#include "bucket/signature.h"
#include "metrics/bucket.h"
#include "telemetry/log.h"
#include "telemetry/trace.h"

namespace tuft::bucket {
namespace {

constexpr size_t kIdleConnectionsMax = 16;
constexpr Nanos kSoonerWhileAway = 10;
constexpr Nanos kPauseMin = 100 * kMillisecond;
constexpr Nanos kPauseMax = 5 * kSecond;

std::string host_of(const Settings& settings) {
  const std::string host = settings.endpoint.substr(settings.endpoint.find("://") + 3);
  return settings.path_style ? host : settings.name + "." + host;
}

// What an answer means.
struct Verdict {
  std::string_view retry;  // why it is worth another try, a value of the label `reason`; empty: it is not
  std::string word;        // for messages
};

Verdict judge(const HttpAnswer& answer, bool is_list) {
  if (!answer.failure.empty()) {
    // Too much of a list is not less at the next time. A name or a certificate may be there later.
    const bool final = answer.failure == "too_large" || answer.failure == "cancelled";
    return {final ? std::string_view() : answer.failure, std::string(answer.failure)};
  }
  if (answer.status >= 200 && answer.status < 300) {
    // The end of a multipart upload can fail with the status 200.
    const std::string code = is_list ? std::string() : error_code_of(answer.body);
    return {code.empty() ? "" : "server_error", code};
  }
  std::string code = error_code_of(answer.body);
  std::string word = code.empty() ? "HTTP status " + std::to_string(answer.status) : code;
  if (answer.status == 429 || answer.status == 503 || code == "SlowDown") return {"slow_down", word};
  if (answer.status == 500 || answer.status == 502 || answer.status == 504) return {"server_error", word};
  if (answer.status == 408 || code == "RequestTimeout") return {"timeout", word};
  if (code == "XAmzContentSHA256Mismatch" || code == "BadDigest" || code == "IncompleteBody") return {"damaged", word};
  return {{}, word};
}

bool is_full(const HttpAnswer& answer, const std::string& code) {
  return answer.status == 507 || code == "QuotaExceeded" || code == "XMinioStorageFull" ||
         code == "XMinioAdminBucketQuotaExceeded";
}

Error error_of(const S3Request& request, const HttpAnswer& answer, const Verdict& verdict, int tries) {
  const std::string what = "(" + std::string(request.operation) + ": " + verdict.word + ")";
  if (answer.failure == "cancelled") {
    return {ErrorCode::kCancelled,
            "the transfer to or from the bucket of checkpoints was cancelled by the end of the "
            "server or its worker",
            "bucket_cancelled"};
  }
  if (answer.failure == "too_large") {
    return {ErrorCode::kPayloadTooLarge, "an object of the bucket of checkpoints is larger than expected",
            "object_too_large"};
  }
  if (!verdict.retry.empty()) {
    return unavailable("the bucket of the server's checkpoints does not answer (" + std::string(request.operation) +
                           ": " + verdict.word + ", after " + std::to_string(tries) +
                           " tries); try again later. Its operator finds the reason in the log, at bucket.failed",
                       "bucket_unavailable");
  }
  if (is_full(answer, verdict.word)) {
    return {ErrorCode::kResourceExhausted, "the bucket of the server's checkpoints is full " + what,
            std::string(kDiskFull)};
  }
  if (answer.status == 404 && verdict.word != "NoSuchBucket") {
    return not_found("an object of the bucket of checkpoints does not exist", "object_missing");
  }
  if (answer.status == 412) {
    return data_loss("an object of the bucket of checkpoints was replaced while it was read", "object_damaged");
  }
  if (answer.status == 401 || answer.status == 403 || verdict.word == "NoSuchBucket") {
    return internal_error("the bucket of the server's checkpoints refuses the server " + what +
                              "; its operator must correct the section bucket: of the configuration, or the rights of "
                              "the keys",
                          "bucket_access");
  }
  return internal_error("the bucket of the server's checkpoints refused a request " + what +
                            "; its operator finds more in the log, at bucket.failed",
                        "bucket_refused");
}

}  // namespace

Requests::Requests(const Settings& settings)
    : settings_(settings),
      host_(host_of(settings)),
      base_url_(settings.endpoint.substr(0, settings.endpoint.find("://") + 3) + host_) {}

Result<HttpAnswer> Requests::send(const S3Request& request) {
  const Clock& clock = system_clock();
  const Nanos begin = clock.monotonic();
  const bool is_sooner = begin < away_until_;
  const Nanos deadline = begin + (is_sooner ? settings_.timeout / kSoonerWhileAway : settings_.timeout);
  Nanos longest = kPauseMin;
  for (int tries = 1;; ++tries) {
    HttpAnswer answer = send_once(request, deadline - clock.monotonic());
    const Verdict verdict = judge(answer, request.operation == "list" || request.operation == "get");
    const bool is_answered = answer.failure.empty() && verdict.retry.empty();
    if (is_answered) away_until_ = 0;
    if (is_answered && answer.status / 100 == 2) return answer;
    // Part of it is random, so that the workers of a server do not come again at the same moment.
    const Nanos wait = longest / 2 + static_cast<Nanos>(random_u64() % static_cast<uint64_t>(longest / 2));
    const bool again = !verdict.retry.empty() && clock.monotonic() + wait < deadline;
    if (!again) {
      if (!verdict.retry.empty() && !is_sooner) away_until_ = clock.monotonic() + settings_.timeout;
      Error error = error_of(request, answer, verdict, tries);
      if (error.code != ErrorCode::kNotFound && error.code != ErrorCode::kCancelled) {
        telemetry::log_error("bucket.failed", error.message + (answer.detail.empty() ? "" : ": " + answer.detail),
                             {{"tuft.bucket.operation", request.operation},
                              {"server.address", host_},
                              {"http.response.status_code", answer.status},
                              {"tuft.tries", tries}});
      }
      return error;
    }
    metrics::bucket().retries.add(1, {{"operation", request.operation}, {"reason", verdict.retry}});
    telemetry::log_warning("bucket.retry", "a request to the bucket of checkpoints failed and is sent again",
                           {{"tuft.bucket.operation", request.operation},
                            {"server.address", host_},
                            {"tuft.reason", verdict.word},
                            {"tuft.seconds", to_seconds(wait)}});
    if (!pause(wait)) return error_of(request, {.failure = "cancelled"}, {}, tries);
    longest = std::min(2 * longest, kPauseMax);
  }
}

HttpAnswer Requests::send_once(const S3Request& request, Nanos timeout) {
  std::unique_ptr<Connection> connection = take_connection();
  if (connection == nullptr) return {.failure = "network_error", .detail = "no memory for a connection"};
  SignedParts parts;
  parts.method = request.method;
  parts.path = (settings_.path_style ? "/" + settings_.name + "/" : "/") + request.key;
  parts.query = request.query;
  parts.headers = request.headers;
  parts.payload_sha256 = sha256_hex(request.body);
  const std::string date = amz_date(system_clock().wall());
  parts.headers["host"] = host_;
  parts.headers["x-amz-content-sha256"] = parts.payload_sha256;
  parts.headers["x-amz-date"] = date;
  if (!settings_.credentials.session_token.empty()) {
    parts.headers["x-amz-security-token"] = settings_.credentials.session_token;
  }
  HttpRequest http;
  http.method = request.method;
  http.url = base_url_ + uri_encoded(parts.path, true);
  if (!request.query.empty()) http.url += "?" + query_string(request.query);
  for (const auto& [name, value] : parts.headers) http.headers.push_back(name + ": " + value);
  // libcurl would say that it is a form, which some servers decode.
  if (request.method == "POST") http.headers.emplace_back("Content-Type: application/xml");
  http.headers.push_back("Authorization: " + authorization(settings_.credentials, settings_.region, date, parts));
  http.body = request.body;
  http.answer_bytes_max = request.answer_bytes_max;
  http.timeout = std::max(timeout, kMillisecond);
  HttpAnswer answer = connection->perform(http);
  give_back(std::move(connection));
  return answer;
}

std::unique_ptr<Connection> Requests::take_connection() {
  {
    MutexLock lock(mutex_);
    if (!idle_.empty()) {
      auto connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  return make_connection(settings_.authorities, end_);
}

void Requests::give_back(std::unique_ptr<Connection> connection) {
  MutexLock lock(mutex_);
  if (idle_.size() < kIdleConnectionsMax) idle_.push_back(std::move(connection));
}

void Requests::cancel(Nanos grace) {
  {
    MutexLock lock(mutex_);
    end_ = system_clock().monotonic() + grace;
  }
  woken_.notify_all();
}

bool Requests::pause(Nanos duration) {
  const Clock& clock = system_clock();
  const Nanos until = clock.monotonic() + duration;
  MutexLock lock(mutex_);
  while (clock.monotonic() < std::min<Nanos>(until, end_)) {
    const Nanos left = std::min<Nanos>(until, end_) - clock.monotonic();
    woken_.wait_until(mutex_, std::chrono::steady_clock::now() + std::chrono::nanoseconds(left));
  }
  return clock.monotonic() < end_;
}

}  // namespace tuft::bucket
