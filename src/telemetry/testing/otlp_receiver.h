// An OpenTelemetry collector for tests: accepts OTLP over gRPC on a free port of 127.0.0.1 and keeps what it receives.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "telemetry/testing/tls_files.h"

namespace tuft::telemetry::testing {

using ReceivedValue = std::variant<bool, int64_t, double, std::string>;
using ReceivedAttributes = std::map<std::string, ReceivedValue>;

// Returns the value as text, whatever its type; "" if there is none.
std::string text_of(const ReceivedAttributes& attributes, const std::string& key);

struct ReceivedEvent {
  std::string name;
  uint64_t time = 0;  // ns since 1970
  ReceivedAttributes attributes;
};

struct ReceivedLink {
  std::string trace_id;
  std::string span_id;
};

struct ReceivedSpan {
  std::string trace_id;  // ids in lower-case hex
  std::string span_id;
  std::string parent_span_id;  // "" for a root
  std::string name;
  std::string scope;
  int kind = 0;  // as OTLP numbers them: 1 internal, 2 server, 3 client
  uint64_t start = 0;
  uint64_t end = 0;
  ReceivedAttributes attributes;
  size_t attribute_count = 0;  // on the wire, doubles included
  uint32_t dropped_attributes = 0;
  std::vector<ReceivedEvent> events;
  std::vector<ReceivedLink> links;
  bool error = false;
  std::string status_message;
  ReceivedAttributes resource;
};

struct ReceivedLog {
  std::string trace_id;  // "" where there is none
  std::string span_id;
  std::string severity;
  int severity_number = 0;
  std::string event_name;
  std::string body;
  uint64_t time = 0;
  ReceivedAttributes attributes;
  ReceivedAttributes resource;
};

struct ReceivedExemplar {
  std::string trace_id;  // lower-case hex; "" if there is none
  std::string span_id;
  double value = 0;
  uint64_t time = 0;
};

struct ReceivedPoint {
  ReceivedAttributes labels;
  double value = 0;  // sums and gauges
  uint64_t count = 0;
  double sum = 0;
  double min = 0;
  double max = 0;
  std::vector<double> bounds;
  std::vector<uint64_t> bucket_counts;  // of an exponential histogram: of positive values
  int32_t scale = 0;                    // this and the next two: of exponential histograms
  int32_t offset = 0;
  uint64_t zero_count = 0;
  std::vector<ReceivedExemplar> exemplars;
};

struct ReceivedMetric {
  std::string name;
  std::string unit;
  std::string scope;
  std::string kind;  // "sum", "gauge", "histogram", "exponential_histogram"
  bool monotonic = false;
  bool cumulative = false;
  std::vector<ReceivedPoint> points;
  ReceivedAttributes resource;

  const ReceivedPoint* point(const std::map<std::string, std::string>& labels) const;
};

// Thread-safe.
class OtlpReceiver {
 public:
  enum class Mode : uint8_t {
    kAnswer,
    kAway,    // UNAVAILABLE
    kRefuse,  // INVALID_ARGUMENT
    kBusy,    // RESOURCE_EXHAUSTED with a RetryInfo of 50 ms
    kPartly,  // accepts everything and reports that it rejected one record
    kHang,    // accepts the call and answers only when the receiver ends
  };

  // With `tls`, clients must have a certificate of its authority.
  explicit OtlpReceiver(Mode mode = Mode::kAnswer, const TlsFiles* tls = nullptr);
  ~OtlpReceiver();
  OtlpReceiver(const OtlpReceiver&) = delete;
  OtlpReceiver& operator=(const OtlpReceiver&) = delete;

  std::string endpoint() const;  // "http://127.0.0.1:port", or https
  void set_mode(Mode mode);

  std::vector<ReceivedSpan> spans() const;
  std::vector<ReceivedLog> logs() const;
  // Returns the newest export of each metric of each resource (service.instance.id).
  std::vector<ReceivedMetric> metrics() const;
  std::optional<ReceivedMetric> metric(const std::string& name) const;
  // Returns the bytes of all requests, to search them for data that must not be there.
  std::string raw_bytes() const;
  // Returns the metadata of the newest request, e.g. headers set by OTEL_EXPORTER_OTLP_HEADERS.
  std::map<std::string, std::string> headers() const;
  size_t requests() const;

  // Waits for more data until `done` returns true. Returns false after `timeout`.
  bool wait_until(const std::function<bool()>& done,
                  std::chrono::milliseconds timeout = std::chrono::seconds(20)) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tuft::telemetry::testing
