// Audit events, token counts, stored bytes, and the trace of a session as a file.
#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "api/handlers/handlers.h"
#include "api/handlers/json_body.h"
#include "api/json/catalog_json.h"
#include "api/json/json_writer.h"
#include "api/routing/own_url.h"
#include "api/routing/query.h"
#include "base/time_text.h"
#include "control/views/catalog.h"
#include "control/views/trace_exports.h"

namespace tuft::api {
namespace {

using control::kHour;

constexpr Nanos kDay = 24 * kHour;
constexpr Nanos kWindowMax = 14 * kDay;
constexpr size_t kTimeBytesMax = 64;
constexpr size_t kTokenBytesMax = 128;
// About a piece: an event has some 300 bytes of JSON.
constexpr size_t kAuditEventsOfPiece = 500;
// An event with its texts.
constexpr size_t kUsageEventBytes = 512;
constexpr double kBytesPerGigabyte = 1e9;
constexpr std::string_view kTraceFilePath = "/api/v1/trace_exports?token=";

std::string_view event_type(control::UsageKind kind) {
  switch (kind) {
    case control::UsageKind::kTraining:
      return "training";
    case control::UsageKind::kSamplingPrefill:
    case control::UsageKind::kSamplingPrefillCached:
      return "sampling_prefill";
    case control::UsageKind::kSamplingOutput:
      return "sampling_sample";
    case control::UsageKind::kCheckpoint:
      return "checkpoint";
    case control::UsageKind::kStorage:
      break;
  }
  return "storage";
}

// Each type has exactly the fields that the SDK knows; it refuses others.
void write_event_info(JsonWriter& json, const control::UsageEvent& event) {
  json.key("event_info").begin_object().key("type").string(event_type(event.kind));
  switch (event.kind) {
    case control::UsageKind::kSamplingPrefill:
    case control::UsageKind::kSamplingPrefillCached:
      json.key("cached").boolean(event.kind == control::UsageKind::kSamplingPrefillCached);
      json.key("token_count").integer(event.count);
      break;
    case control::UsageKind::kTraining:
    case control::UsageKind::kSamplingOutput:
      json.key("token_count").integer(event.count);
      break;
    case control::UsageKind::kCheckpoint:
      json.key("count").integer(event.count);
      break;
    case control::UsageKind::kStorage:
      json.key("gigabyte_hours").number(static_cast<double>(event.count) / kBytesPerGigabyte / 3600);
      break;
  }
  json.end_object();
}

void write_text_or_null(JsonWriter& json, std::string_view key, const std::string& text) {
  json.key(key);
  if (text.empty()) {
    json.null();
  } else {
    json.string(text);
  }
}

void write_event(JsonWriter& json, const control::UsageEvent& event) {
  json.begin_object().key("bucket_start").string(time_text(event.bucket_start));
  json.key("bucket_end").string(time_text(event.bucket_start + kHour));
  write_text_or_null(json, "base_model", event.base_model);
  json.key("user_id").string(event.user.str()).key("user_name").string(event.user.str());
  write_text_or_null(json, "session_id", event.session.str());
  write_text_or_null(json, "project_id", event.project_id);
  write_text_or_null(json, "training_run_id", event.run.str());
  write_event_info(json, event);
  json.end_object();
}

// Names nobody but the user who asks.
void write_details(JsonWriter& json, const control::AuditEvent& event, const control::UserId& user) {
  const bool own = event.user == user;
  json.key("event_details").begin_object();
  json.key("actor").string(own ? "you" : event.user.empty() ? "server" : "another_user");
  if (own && event.session) json.key("session_id").string(event.session->str());
  if (event.run) json.key("training_run_id").string(event.run->str());
  if (event.tinker_path) json.key("tinker_path").string(*event.tinker_path);
  if (!event.purpose.empty()) json.key("purpose").string(event.purpose);
  json.end_object();
}

void write_audit_event(JsonWriter& json, const control::AuditEvent& event, const control::UserId& user) {
  json.begin_object().key("timestamp").string(time_text(event.time));
  json.key("event").string(control::audit_action_name(event.action));
  write_text_or_null(json, "model_id", event.run ? event.run->str() : "");
  write_text_or_null(json, "tinker_path", event.tinker_path.value_or(""));
  write_text_or_null(json, "purpose", event.purpose);
  write_details(json, event, user);
  json.end_object();
}

Result<std::pair<Nanos, Nanos>> read_window(Exchange& exchange) {
  QueryFields query(exchange.query);
  const auto read = [&](std::string_view key) -> Nanos {
    const auto text = query.text(key, kTimeBytesMax);
    const auto time = text ? parse_time_text(*text) : std::nullopt;
    if (!time || *time % kHour != 0) query.problem(key, "must be an RFC 3339 time on the hour (2026-07-13T00:00:00Z)");
    return time.value_or(0);
  };
  const Nanos from = read("starting_on");
  const Nanos until = read("ending_before");
  TUFT_TRY(query.status());
  if (until <= from || until - from > kWindowMax) {
    query.problem("ending_before", "must be after starting_on, by 14 days at most");
  }
  if (from > system_clock().wall()) query.problem("starting_on", "must not be in the future");
  TUFT_TRY(query.status());
  return std::pair(from, until);
}

// The SDK asks for a day at a time and knows no pages, so the whole day is one answer.
JsonPieces audit_pieces(const control::Usage& usage, control::UserId user, control::AuditQuery query) {
  JsonWriter json;
  json.begin_object().key("entries").begin_array();
  do {
    {
      const control::AuditPage page = usage.audit_page(user, query);
      for (const control::AuditEvent& event : page.events) write_audit_event(json, event, user);
      query.after = page.next;
    }
    if (query.after && json.size() > 0) co_yield json.take_piece();
  } while (query.after);
  json.end_array().end_object();
  co_yield json.take_piece();
}

void write_session(JsonWriter& json, const control::Usage& usage, const control::SessionId& session) {
  json.key(session.str()).begin_object();
  write_metadata(json, usage.session_metadata(session));
  json.end_object();
}

// `memory` is that of the events.
JsonPieces usage_pieces(const control::Usage& usage, std::vector<control::UsageEvent> events,
                        [[maybe_unused]] ByteAccount::Hold memory) {
  JsonWriter json;
  json.begin_object().key("data").begin_array();
  std::set<control::SessionId> sessions;
  for (const control::UsageEvent& event : events) {
    write_event(json, event);
    if (!event.session.empty()) sessions.insert(event.session);
    if (json.size() >= kJsonPieceBytes) co_yield json.take_piece();
  }
  json.end_array().key("sessions").begin_object();
  for (const control::SessionId& session : sessions) {
    write_session(json, usage, session);
    if (json.size() >= kJsonPieceBytes) co_yield json.take_piece();
  }
  json.end_object().end_object();
  co_yield json.take_piece();
}

std::string poll_json(const control::TraceExport& made, const std::string& url_base) {
  using State = control::TraceExport::State;
  JsonWriter json;
  json.begin_object().key("status");
  switch (made.state) {
    case State::kPending:
      json.string("pending");
      break;
    case State::kReady:
      json.string("ready").key("url").string(url_base + made.token).key("expires").string(time_text(made.expires));
      break;
    case State::kFailed:
      json.string("failed").key("error").string(made.error);
      break;
  }
  json.end_object();
  return std::move(json).take();
}

}  // namespace

Result<Answer> handle_audit(Exchange& exchange) {
  QueryFields query(exchange.query);
  const std::string_view type =
      query.word("event_type", "all", {"all", "checkpoints", "projects", "teams", "organizations"});
  const Nanos now = system_clock().wall();
  Nanos day = now - now % kDay;
  if (const auto text = query.text("day", kTimeBytesMax)) {
    const auto asked = parse_day(*text);
    if (!asked) query.problem("day", "must be a date (2026-07-13)");
    day = asked.value_or(day);
  }
  TUFT_TRY(query.status());
  // Nothing happens to projects, teams and organizations: this server has none.
  const bool can_exist = type == "all" || type == "checkpoints";
  const control::AuditQuery wanted{.from = day,
                                   .until = can_exist ? day + kDay : day,
                                   .checkpoints_only = type == "checkpoints",
                                   .limit = kAuditEventsOfPiece};
  return answer_in_pieces(exchange, audit_pieces(exchange.control.usage(), exchange.user, wanted));
}

Result<Answer> handle_billing_usage(Exchange& exchange) {
  TUFT_ASSIGN(const auto window, read_window(exchange));
  auto events = exchange.control.usage().events(exchange.user, window.first, window.second);
  std::stable_sort(events.begin(), events.end(), [](const control::UsageEvent& a, const control::UsageEvent& b) {
    return std::tuple(a.bucket_start, -a.count) < std::tuple(b.bucket_start, -b.count);
  });
  // Held until the client has read them.
  const auto bytes = static_cast<int64_t>(events.size() * kUsageEventBytes);
  TUFT_ASSIGN(ByteAccount::Hold memory, exchange.control.generation().hold_memory(exchange.user, bytes));
  return answer_in_pieces(exchange, usage_pieces(exchange.control.usage(), std::move(events), std::move(memory)));
}

// Prices are unknown to the server and therefore null.
Result<Answer> handle_stored_checkpoints(Exchange& exchange) {
  QueryFields query(exchange.query);
  const std::string project = query.text("project_id", kProjectBytesMax).value_or("");
  TUFT_TRY(query.status());
  JsonWriter json;
  json.begin_object().key("effective_rate_usd_per_gigabyte_month").null().key("data").begin_array();
  for (const control::StoredView& stored : exchange.control.catalog().stored(exchange.user, project)) {
    json.begin_object();
    write_text_or_null(json, "project_id", stored.project);
    json.key("user_name").string(exchange.user.str());
    json.key("checkpoint_count").integer(stored.checkpoints).key("size_bytes").integer(stored.size_bytes);
    json.key("size_gigabytes").number(static_cast<double>(stored.size_bytes) / kBytesPerGigabyte);
    json.key("estimated_monthly_cost_usd").null().end_object();
  }
  json.end_array().end_object();
  return json_answer(std::move(json).take());
}

Result<Answer> handle_trace_export(Exchange& exchange) {
  const control::SessionId session(exchange.path_parameters.at(0));
  AwaitResponse later;
  later.start = [&exports = exchange.control.trace_exports(), user = exchange.user, session,
                 url = own_url(exchange, kTraceFilePath)](std::function<void(Result<Response>)> done) {
    exports.make(user, session, [url, done = std::move(done)](Result<control::TraceExport> made) {
      if (!made.ok()) return done(std::move(made).error());
      done(json_response(poll_json(*made, url)));
    });
  };
  return Answer(std::move(later));
}

// The route needs no API key: the token is the credential. It is in the query, which spans and logs never contain.
Result<Answer> handle_trace_file(Exchange& exchange) {
  QueryFields query(exchange.query);
  const auto token = query.text("token", kTokenBytesMax);
  TUFT_TRY(query.status());
  TUFT_ASSIGN(control::TraceFile file, exchange.control.trace_exports().open(token.value_or("")));
  Response response;
  response.shared_body = std::move(file.json);
  response.headers.emplace_back("Content-Disposition", "attachment; filename=\"" + file.name + "\"");
  response.headers.emplace_back("Cache-Control", "private, no-store");
  return Answer(std::move(response));
}

}  // namespace tuft::api
