#include "api/handlers/client_telemetry.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "api/json/body_shape.h"
#include "api/json/json_reader.h"
#include "metrics/http.h"
#include "telemetry/log.h"

namespace tuft::api {
namespace {

using telemetry::Severity;

constexpr int kEventsMax = 100;

struct KnownEvent {
  std::string_view wire;
  std::string_view label;
  telemetry::Name log_name;
};

constexpr KnownEvent kEvents[] = {
    {"SESSION_START", "session_start", "client.session_start"},
    {"SESSION_END", "session_end", "client.session_end"},
    {"UNHANDLED_EXCEPTION", "unhandled_exception", "client.unhandled_exception"},
    {"APIFuture.result_async.timeout", "future_timeout", "client.future_timeout"},
    {"APIFuture.result_async.application_error", "future_application_error", "client.future_application_error"},
    {"connection_error", "connection_error", "client.connection_error"},
    {"APIFuture.result_async.proto_deserialization_error", "future_decode_error", "client.future_decode_error"},
    {"APIFuture.result_async.validation_error", "future_validation_error", "client.future_validation_error"},
    {"RetryHandler.execute.exception", "sample_retry", "client.sample_retry"},
    {"InternalClientHolder.execute_with_retries.exception", "request_retry", "client.request_retry"},
    {"user_error", "user_error", "client.user_error"},
};
constexpr KnownEvent kOther = {"", "other", "client.other"};

const KnownEvent& known_event(std::string_view wire) {
  const auto* found =
      std::find_if(std::begin(kEvents), std::end(kEvents), [&](const KnownEvent& event) { return event.wire == wire; });
  return found == std::end(kEvents) ? kOther : *found;
}

// Routine reports come with every long poll of every client, so they are logged at a lower level.
Severity severity_of(std::string_view text, bool routine) {
  if (text == "ERROR" || text == "CRITICAL") return Severity::kError;
  if (text == "WARNING") return Severity::kWarning;
  return routine || text == "DEBUG" ? Severity::kDebug : Severity::kInfo;
}

// Returns the name if it looks like a Python class, else "unknown".
std::string class_name(std::string_view text) {
  const bool good = !text.empty() && text.size() <= 80 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
  return good ? std::string(text) : "unknown";
}

std::string id_or_empty(const std::string& text) {
  return is_id(text) ? text : std::string();
}

std::string_view severity_label(Severity severity) {
  constexpr std::string_view kLabels[] = {"debug", "info", "warning", "error"};
  return kLabels[static_cast<size_t>(severity)];
}

void count(std::string_view event, Severity severity) {
  metrics::http().client_events.add(1, {{"event", event}, {"severity", severity_label(severity)}});
}

void count_dropped(std::string_view reason, int64_t events) {
  metrics::http().client_events_dropped.add(events, {{"reason", reason}});
}

void record(const JsonFields& event, const std::string& session, const std::string& sdk_version) {
  const std::string kind = event.string("event", "");
  const bool generic = kind == "GENERIC_EVENT";
  const KnownEvent& known = known_event(generic ? event.string("event_name", "") : kind);
  const Severity severity = severity_of(event.string("severity", "INFO"), generic);
  count(known.label, severity);
  const int64_t index = event.optional_integer("event_session_index").value_or(-1);
  if (kind == "UNHANDLED_EXCEPTION") {
    const std::string type = class_name(event.string("error_type", ""));
    telemetry::log(severity, known.log_name, "the client reports an unhandled exception",
                   {{"tuft.session_id", session},
                    {"tuft.client.sdk_version", sdk_version},
                    {"tuft.client.event_index", index},
                    {"exception.type", type}});
    return;
  }
  telemetry::log(
      severity, known.log_name, "reported by the client",
      {{"tuft.session_id", session}, {"tuft.client.sdk_version", sdk_version}, {"tuft.client.event_index", index}});
}

}  // namespace

ClientEventBudget::Minute& ClientEventBudget::minute_locked(const control::UserId& user, Nanos now) {
  Minute& minute = minutes_[user];
  if (minute.begin == 0 || now - minute.begin >= 60 * kSecond) minute = {.begin = now};
  return minute;
}

bool ClientEventBudget::take_bytes(const control::UserId& user, size_t bytes, Nanos now) {
  MutexLock lock(mutex_);
  Minute& minute = minute_locked(user, now);
  if (bytes > kBytesPerMinute - std::min(minute.bytes, kBytesPerMinute)) return false;
  minute.bytes += bytes;
  return true;
}

bool ClientEventBudget::take_event(const control::UserId& user, Nanos now) {
  MutexLock lock(mutex_);
  return ++minute_locked(user, now).events <= kEventsPerMinute;
}

void record_client_events(Exchange& exchange, ClientEventBudget& budget) {
  const Nanos now = system_clock().monotonic();
  if (!budget.take_bytes(exchange.user, exchange.body.size(), now)) return count_dropped("bytes", 1);
  if (!admit_json(exchange).ok()) return count("malformed", Severity::kWarning);
  JsonBody body(exchange.body);
  const JsonFields fields = body.fields();
  std::string session = id_or_empty(fields.string("session_id", ""));
  if (!exchange.control.catalog().owns_session(exchange.user, control::SessionId(session))) session.clear();
  const std::string sdk_version = id_or_empty(fields.string("sdk_version", ""));
  int seen = 0;
  int dropped = 0;
  fields.for_each_object("events", false, [&](const JsonFields& event) {
    if (++seen > kEventsMax || !budget.take_event(exchange.user, now)) {
      ++dropped;
    } else {
      record(event, session, sdk_version);
    }
  });
  if (!body.status().ok()) count("malformed", Severity::kWarning);
  if (dropped > 0) count_dropped("count", dropped);
}

}  // namespace tuft::api
