#include "bucket/connection.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <utility>

#include <curl/curl.h>

#include "base/text.h"

namespace tuft::bucket {
namespace {

constexpr long kConnectMilliseconds = 5'000;
// A transfer that is slower for so long has come to a halt.
constexpr long kSlowestBytesPerSecond = 1'000;
constexpr long kSlowSeconds = 10;
constexpr size_t kHeadersMax = 100;
constexpr size_t kErrorBytesMax = 64 << 10;

struct EasyDelete {
  void operator()(CURL* handle) const { ::curl_easy_cleanup(handle); }
};
struct ListDelete {
  void operator()(curl_slist* list) const { ::curl_slist_free_all(list); }
};
using HeaderList = std::unique_ptr<curl_slist, ListDelete>;

void add_header(HeaderList& list, const std::string& line) {
  if (curl_slist* const longer = ::curl_slist_append(list.get(), line.c_str())) {
    static_cast<void>(list.release());
    list.reset(longer);
  }
}

std::string_view failure_of(CURLcode code) {
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
    case CURLE_ABORTED_BY_CALLBACK:
      return "cancelled";
    case CURLE_WRITE_ERROR:  // take_body() refused more
      return "too_large";
    default:
      return "network_error";
  }
}

struct Answering {
  HttpAnswer& answer;
  size_t bytes_max;
};

size_t take_body(const char* data, size_t, size_t size, void* target) {
  auto& [answer, bytes_max] = *static_cast<Answering*>(target);
  const bool is_error = answer.status >= 300;
  if (answer.body.size() + size > (is_error ? kErrorBytesMax : bytes_max)) return 0;
  answer.body.append(data, size);
  return size;
}

size_t take_header(const char* data, size_t, size_t size, void* target) {
  HttpAnswer& answer = static_cast<Answering*>(target)->answer;
  const std::string_view line(data, size);
  if (line.starts_with("HTTP/")) {
    answer.headers.clear();  // an interim answer (100 Continue) has headers of its own
    const size_t blank = std::min(line.find(' '), line.size());
    answer.status = std::strtol(std::string(line.substr(blank)).c_str(), nullptr, 10);
  }
  const size_t colon = line.find(':');
  if (colon == line.npos || answer.headers.size() >= kHeadersMax) return size;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  answer.headers[std::move(name)] = trimmed(line.substr(colon + 1));
  return size;
}

struct Sending {
  std::string_view body;
  size_t sent = 0;
};

size_t give_body(char* buffer, size_t, size_t room, void* source) {
  auto& [body, sent] = *static_cast<Sending*>(source);
  const size_t size = std::min(room, body.size() - sent);
  std::copy_n(body.data() + sent, size, buffer);
  sent += size;
  return size;
}

// libcurl sends a body again when the kept connection turns out to be closed.
int rewind_body(void* source, curl_off_t offset, int origin) {
  if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
  static_cast<Sending*>(source)->sent = static_cast<size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

int ask_whether_cancelled(void* end, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return system_clock().monotonic() >= static_cast<const std::atomic<Nanos>*>(end)->load() ? 1 : 0;
}

class CurlConnection final : public Connection {
 public:
  CurlConnection(std::unique_ptr<CURL, EasyDelete> easy, const std::string& authorities, const std::atomic<Nanos>& end)
      : easy_(std::move(easy)), authorities_(authorities), end_(end) {}

  HttpAnswer perform(const HttpRequest& request) override {
    HttpAnswer answer;
    Answering answering{answer, request.answer_bytes_max};
    Sending sending{request.body};
    std::array<char, CURL_ERROR_SIZE> problem{};
    ::curl_easy_reset(easy_.get());  // keeps the connection
    set_fixed_options();
    HeaderList headers;
    for (const std::string& line : request.headers) add_header(headers, line);
    add_header(headers, "Expect:");  // no round trip that asks whether a body may be sent
    CURL* const handle = easy_.get();
    ::curl_easy_setopt(handle, CURLOPT_URL, request.url.c_str());
    ::curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
    ::curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout / kMillisecond));
    ::curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, problem.data());
    ::curl_easy_setopt(handle, CURLOPT_WRITEDATA, &answering);
    ::curl_easy_setopt(handle, CURLOPT_HEADERDATA, &answering);
    set_method(request, sending);
    const CURLcode code = ::curl_easy_perform(handle);
    if (code == CURLE_OK) return answer;
    answer.failure = failure_of(code);
    answer.detail = problem[0] != '\0' ? problem.data() : ::curl_easy_strerror(code);
    return answer;
  }

 private:
  void set_fixed_options() {
    CURL* const handle = easy_.get();
    ::curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    ::curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
    ::curl_easy_setopt(handle, CURLOPT_PROXY, "");  // that of the environment may be of another network
    ::curl_easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);
    ::curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    ::curl_easy_setopt(handle, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
    ::curl_easy_setopt(handle, CURLOPT_USERAGENT, "tuft/" TUFT_VERSION);
    ::curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    ::curl_easy_setopt(handle, CURLOPT_QUICK_EXIT, 1L);  // a name that cannot be resolved must not delay a shutdown
    ::curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, kConnectMilliseconds);
    ::curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, kSlowestBytesPerSecond);
    ::curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, kSlowSeconds);
    ::curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &take_body);
    ::curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, &take_header);
    ::curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
    ::curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, &ask_whether_cancelled);
    ::curl_easy_setopt(handle, CURLOPT_XFERINFODATA, const_cast<std::atomic<Nanos>*>(&end_));
    ::curl_easy_setopt(handle, CURLOPT_BUFFERSIZE, 256L << 10);
    ::curl_easy_setopt(handle, CURLOPT_UPLOAD_BUFFERSIZE, 256L << 10);
    if (authorities_.empty()) return;
    curl_blob blob = {const_cast<char*>(authorities_.data()), authorities_.size(), CURL_BLOB_NOCOPY};
    ::curl_easy_setopt(handle, CURLOPT_CAINFO_BLOB, &blob);
    ::curl_easy_setopt(handle, CURLOPT_CAPATH, nullptr);
  }

  void set_method(const HttpRequest& request, Sending& sending) {
    CURL* const handle = easy_.get();
    if (request.method == "HEAD") {
      ::curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
    } else if (request.method == "PUT") {
      ::curl_easy_setopt(handle, CURLOPT_UPLOAD, 1L);
      ::curl_easy_setopt(handle, CURLOPT_READFUNCTION, &give_body);
      ::curl_easy_setopt(handle, CURLOPT_READDATA, &sending);
      ::curl_easy_setopt(handle, CURLOPT_SEEKFUNCTION, &rewind_body);
      ::curl_easy_setopt(handle, CURLOPT_SEEKDATA, &sending);
      ::curl_easy_setopt(handle, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    } else if (request.method == "POST") {
      ::curl_easy_setopt(handle, CURLOPT_POST, 1L);
      ::curl_easy_setopt(handle, CURLOPT_POSTFIELDS, request.body.empty() ? "" : request.body.data());
      ::curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    } else {
      ::curl_easy_setopt(handle, CURLOPT_HTTPGET, 1L);
      if (request.method != "GET") ::curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
    }
  }

  const std::unique_ptr<CURL, EasyDelete> easy_;
  const std::string& authorities_;
  const std::atomic<Nanos>& end_;
};

}  // namespace

std::unique_ptr<Connection> make_connection(const std::string& authorities, const std::atomic<Nanos>& end) {
  static const CURLcode initialised = ::curl_global_init(CURL_GLOBAL_DEFAULT);
  std::unique_ptr<CURL, EasyDelete> easy(initialised == CURLE_OK ? ::curl_easy_init() : nullptr);
  if (easy == nullptr) return nullptr;
  return std::make_unique<CurlConnection>(std::move(easy), authorities, end);
}

}  // namespace tuft::bucket
