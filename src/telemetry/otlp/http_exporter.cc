#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <utility>

#include <curl/curl.h>

#include "telemetry/otlp/exporters.h"
#include "telemetry/otlp/gzip.h"
#include "telemetry/otlp/response.h"

namespace tuft::telemetry::internal::otlp {
namespace {

using Outcome = ExportResult::Outcome;

constexpr size_t kResponseBytesMax = size_t{64} << 10;
constexpr std::string_view kProtobuf = "application/x-protobuf";

struct EasyDelete {
  void operator()(CURL* handle) const { ::curl_easy_cleanup(handle); }
};
struct MultiDelete {
  void operator()(CURLM* handle) const { ::curl_multi_cleanup(handle); }
};
struct ListDelete {
  void operator()(curl_slist* list) const { ::curl_slist_free_all(list); }
};
using HeaderList = std::unique_ptr<curl_slist, ListDelete>;

// Bytes over the limit are read and discarded: a collector with a long response has still taken the data.
size_t take_response(const char* data, size_t, size_t size, void* response) {
  auto& out = *static_cast<std::string*>(response);
  out.append(data, std::min(size, kResponseBytesMax - out.size()));
  return size;
}

void add_header(HeaderList& list, const std::string& line) {
  if (curl_slist* const longer = ::curl_slist_append(list.get(), line.c_str())) {
    static_cast<void>(list.release());
    list.reset(longer);
  }
}

HeaderList make_headers(const SignalSettings& settings) {
  HeaderList list;
  for (const auto& [key, value] : settings.headers) add_header(list, key + ": " + value);
  add_header(list, "Content-Type: " + std::string(kProtobuf));
  if (settings.compression == Compression::kGzip) add_header(list, "Content-Encoding: gzip");
  // Disables the round trip that asks whether a body may be sent.
  add_header(list, "Expect:");
  return list;
}

const char* transport_error_type(CURLcode code) {
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return "timeout";
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
      return "connection_failed";
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
      return "tls_failed";
    default:
      return "network_error";
  }
}

// The OTLP specification allows retries for these statuses only.
bool is_retryable(long status) {
  return status == 429 || status == 502 || status == 503 || status == 504;
}

// Runs on the export thread. Uses a multi handle with one transfer, because cancel() can interrupt only that.
class HttpExporter final : public Exporter {
 public:
  HttpExporter(SignalSettings settings, std::unique_ptr<CURLM, MultiDelete> multi,
               std::unique_ptr<CURL, EasyDelete> easy)
      : settings_(std::move(settings)),
        headers_(make_headers(settings_)),
        multi_(std::move(multi)),
        easy_(std::move(easy)) {
    set_options();
  }

  ExportResult send(std::string_view request) override {
    std::string compressed;
    if (settings_.compression == Compression::kGzip) {
      compressed = gzip(request);
      if (compressed.empty())
        return {.outcome = Outcome::kRetry, .error_type = "gzip", .message = "no memory to compress the request"};
      request = compressed;
    }
    response_.clear();
    problem_[0] = '\0';
    ::curl_easy_setopt(easy_.get(), CURLOPT_POSTFIELDS, request.data());
    ::curl_easy_setopt(easy_.get(), CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.size()));
    CURLcode code = CURLE_OK;
    if (!transfer(code))
      return {.outcome = Outcome::kRetry, .error_type = "cancelled", .message = "cancelled by the shutdown"};
    return code == CURLE_OK ? read_answer() : read_transport_failure(code);
  }

  void cancel() override {
    cancelled_.store(true);
    ::curl_multi_wakeup(multi_.get());
  }

 private:
  void set_options();
  // Returns false if it was cancelled.
  bool transfer(CURLcode& code);
  ExportResult read_answer();
  ExportResult read_transport_failure(CURLcode code) const;

  const SignalSettings settings_;
  const HeaderList headers_;
  const std::unique_ptr<CURLM, MultiDelete> multi_;
  const std::unique_ptr<CURL, EasyDelete> easy_;
  std::string response_;
  std::array<char, CURL_ERROR_SIZE> problem_{};
  std::atomic<bool> cancelled_{false};
};

void HttpExporter::set_options() {
  CURL* const handle = easy_.get();
  ::curl_easy_setopt(handle, CURLOPT_URL, settings_.endpoint.c_str());
  ::curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  // Headers carry credentials: they are sent to the endpoint only, not to a redirect's target.
  ::curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
  ::curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  ::curl_easy_setopt(handle, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  ::curl_easy_setopt(handle, CURLOPT_POST, 1L);
  ::curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers_.get());
  ::curl_easy_setopt(handle, CURLOPT_USERAGENT, "tuft-telemetry/" TUFT_VERSION);
  ::curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(settings_.export_timeout / kMillisecond));
  ::curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  // A name that cannot be resolved must not delay a shutdown.
  ::curl_easy_setopt(handle, CURLOPT_QUICK_EXIT, 1L);
  ::curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &take_response);
  ::curl_easy_setopt(handle, CURLOPT_WRITEDATA, &response_);
  ::curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, problem_.data());
  const auto set_file = [handle](CURLoption option, const std::string& path) {
    if (!path.empty()) ::curl_easy_setopt(handle, option, path.c_str());
  };
  set_file(CURLOPT_CAINFO, settings_.ca_file);
  set_file(CURLOPT_SSLCERT, settings_.certificate_file);
  set_file(CURLOPT_SSLKEY, settings_.key_file);
}

bool HttpExporter::transfer(CURLcode& code) {
  if (cancelled_.load()) return false;
  code = CURLE_FAILED_INIT;
  if (::curl_multi_add_handle(multi_.get(), easy_.get()) != CURLM_OK) return true;
  int running = 1;
  while (!cancelled_.load()) {
    if (::curl_multi_perform(multi_.get(), &running) != CURLM_OK || running == 0) break;
    constexpr int kPollMs = 1000;
    if (::curl_multi_poll(multi_.get(), nullptr, 0, kPollMs, nullptr) != CURLM_OK) break;
  }
  int left = 0;
  while (const CURLMsg* const message = ::curl_multi_info_read(multi_.get(), &left)) {
    if (message->msg == CURLMSG_DONE) code = message->data.result;
  }
  ::curl_multi_remove_handle(multi_.get(), easy_.get());
  return running == 0 || !cancelled_.load();
}

ExportResult HttpExporter::read_answer() {
  long status = 0;
  ::curl_easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &status);
  const char* type = nullptr;
  ::curl_easy_getinfo(easy_.get(), CURLINFO_CONTENT_TYPE, &type);
  const bool is_protobuf = type != nullptr && std::string_view(type).starts_with(kProtobuf);
  ExportResult result;
  if (status >= 200 && status < 300) {
    if (!is_protobuf) return result;
    PartialSuccess partial = read_partial_success(response_);
    result.rejected = partial.rejected;
    result.message = std::move(partial.message);
    return result;
  }
  result.outcome = is_retryable(status) ? Outcome::kRetry : Outcome::kRefused;
  result.error_type = std::to_string(status);
  const StatusDetails details = is_protobuf ? read_status(response_) : StatusDetails{};
  result.message = "HTTP " + result.error_type + ": " + (is_protobuf ? details.message : message_for_people(response_));
  constexpr curl_off_t kRetrySecondsMax = 3600;
  curl_off_t seconds = 0;
  ::curl_easy_getinfo(easy_.get(), CURLINFO_RETRY_AFTER, &seconds);
  result.retry_after = std::max(details.retry_after, std::clamp<curl_off_t>(seconds, 0, kRetrySecondsMax) * kSecond);
  return result;
}

ExportResult HttpExporter::read_transport_failure(CURLcode code) const {
  return {.outcome = Outcome::kRetry,
          .error_type = transport_error_type(code),
          .message = message_for_people(problem_[0] != '\0' ? problem_.data() : ::curl_easy_strerror(code))};
}

}  // namespace

Result<std::unique_ptr<Exporter>> make_http_exporter(Signal, const SignalSettings& settings) {
  for (const auto& [what, path] : {std::pair("the CA certificate", &settings.ca_file),
                                   std::pair("the client certificate", &settings.certificate_file),
                                   std::pair("the client key", &settings.key_file)}) {
    if (!path->empty()) TUFT_TRY(read_credential(what, *path));
  }
  static const CURLcode initialised = ::curl_global_init(CURL_GLOBAL_DEFAULT);
  std::unique_ptr<CURLM, MultiDelete> multi(initialised == CURLE_OK ? ::curl_multi_init() : nullptr);
  std::unique_ptr<CURL, EasyDelete> easy(initialised == CURLE_OK ? ::curl_easy_init() : nullptr);
  if (multi == nullptr || easy == nullptr) return internal_error("libcurl cannot be used");
  return std::unique_ptr<Exporter>(std::make_unique<HttpExporter>(settings, std::move(multi), std::move(easy)));
}

}  // namespace tuft::telemetry::internal::otlp
