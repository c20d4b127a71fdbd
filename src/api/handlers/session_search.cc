// The search for sessions.
#include <algorithm>
#include <string>
#include <utility>

#include "api/handlers/handlers.h"
#include "api/json/json_reader.h"
#include "api/json/json_writer.h"
#include "base/time_text.h"
#include "control/types/checkpoint.h"
#include "control/views/catalog.h"

namespace tuft::api {
namespace {

using control::SessionState;

constexpr int64_t kFoundDefault = 50;
constexpr int64_t kFoundMax = 200;
// What a query may ask for: each session of the user is compared with all of it.
constexpr size_t kProjectsMax = 64;
constexpr size_t kOwnersMax = 10;
constexpr size_t kMetadataMax = 64;
constexpr size_t kStatusesMax = 16;
constexpr size_t kSearchedNameBytesMax = 256;
constexpr size_t kNameWordsMax = 8;

struct StatusWord {
  std::string_view name;
  SessionState state;
};
constexpr StatusWord kStatuses[] = {{"active", SessionState::kActive},
                                    {"cancelled", SessionState::kCancelled},
                                    {"client_finished", SessionState::kFinished},
                                    {"failed", SessionState::kFailed}};

std::string_view status_name(SessionState state) {
  const auto* found = std::find_if(std::begin(kStatuses), std::end(kStatuses),
                                   [&](const StatusWord& word) { return word.state == state; });
  return found->name;
}

std::string at_most(size_t count, std::string_view what) {
  return "must have at most " + std::to_string(count) + " " + std::string(what);
}

// Splits the text at blanks, in lower case.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text) {
    if (c == ' ' || (c >= '\t' && c <= '\r')) {
      if (!word.empty()) words.push_back(std::exchange(word, {}));
    } else {
      word += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

void read_status(const JsonFields& fields, control::SessionQuery& query) {
  fields.only({"type", "reasons"});
  const std::string type = fields.required_string("type");
  const auto* word = std::find_if(std::begin(kStatuses), std::end(kStatuses),
                                  [&](const StatusWord& each) { return each.name == type; });
  if (word == std::end(kStatuses)) {
    return fields.problem("type", "must be active, cancelled, failed or client_finished");
  }
  control::SessionStateQuery status{word->state};
  for (const std::string& name : fields.string_list("reasons")) {
    const auto reason = control::finish_reason_of(name);
    if (!reason) return fields.problem("reasons", "must be success, errored or interrupted");
    if (status.reasons.size() < control::kFinishReasons) status.reasons.push_back(*reason);
  }
  query.states.push_back(std::move(status));
}

void read_cursor(const JsonFields& fields, control::SessionQuery& query) {
  const auto cursor = fields.object("cursor");
  if (!cursor) return;
  cursor->only({"last_created_at", "last_session_id"});
  const auto time = parse_time_text(cursor->required_string("last_created_at"));
  if (!time) cursor->problem("last_created_at", "must be an RFC 3339 time");
  query.after.emplace(control::iso_time(time.value_or(0)), control::SessionId(cursor->required_id("last_session_id")));
}

control::SessionQuery read_query(const JsonFields& fields) {
  fields.only({"session_id", "project_ids", "user_metadata", "display_name", "owner", "statuses", "limit", "cursor"});
  control::SessionQuery query;
  if (fields.has("session_id")) query.session_id = fields.required_id("session_id");
  query.projects = fields.string_list("project_ids");
  if (query.projects.size() > kProjectsMax) fields.problem("project_ids", at_most(kProjectsMax, "elements"));
  query.user_metadata = fields.string_map("user_metadata");
  if (query.user_metadata.size() > kMetadataMax) fields.problem("user_metadata", at_most(kMetadataMax, "entries"));
  if (fields.has("display_name")) {
    const std::string name = fields.string("display_name", "");
    query.name_words = words_of(name);
    if (name.empty() || name.size() > kSearchedNameBytesMax) fields.problem("display_name", "must have 1 to 256 bytes");
    if (query.name_words.size() > kNameWordsMax) fields.problem("display_name", at_most(kNameWordsMax, "words"));
  }
  size_t statuses = 0;
  fields.for_each_object("statuses", false, [&](const JsonFields& status) {
    if (++statuses > kStatusesMax) return status.problem("type", at_most(kStatusesMax, "statuses before it"));
    read_status(status, query);
  });
  if (fields.has("statuses") && statuses == 0) fields.problem("statuses", "must not be empty");
  query.limit = static_cast<size_t>(fields.optional_integer("limit", 1, kFoundMax).value_or(kFoundDefault));
  read_cursor(fields, query);
  return query;
}

// Returns whether the user's own sessions are among those that are searched. No user can see those of others.
bool read_owner(const JsonFields& fields, const control::UserId& user) {
  const auto owner = fields.object("owner");
  if (!owner) return true;
  owner->only({"type", "owner_urns"});
  const std::string type = owner->required_string("type");
  if (type == "own" || type == "accessible") {
    if (owner->has("owner_urns")) owner->problem("owner_urns", "must be absent unless type is user");
    return true;
  }
  if (type != "user") owner->problem("type", "must be own, accessible or user");
  const std::vector<std::string> owners = owner->string_list("owner_urns");
  if (owners.empty() || owners.size() > kOwnersMax) owner->problem("owner_urns", "must have 1 to 10 elements");
  return std::find(owners.begin(), owners.end(), user.str()) != owners.end();
}

void write_status(JsonWriter& json, const control::SessionFound& session) {
  json.key("status").begin_object().key("type").string(status_name(session.state));
  if (session.state == SessionState::kFinished) {
    json.key("reason").begin_object().key("type").string(control::finish_reason_name(session.finish.reason));
    json.end_object();
    if (!session.finish.detail.empty()) json.key("detail").string(session.finish.detail);
  }
  if (session.state == SessionState::kCancelled) json.key("detail").string(session.ending);
  json.end_object();
}

void write_session(JsonWriter& json, const control::SessionFound& session, const control::UserId& owner) {
  json.begin_object().key("session_id").string(session.id.str()).key("created_at").string(session.created_at);
  json.key("owner").string(owner.str()).key("project_id");
  json.string(session.project_id.empty() ? control::kDefaultProject : std::string_view(session.project_id));
  write_status(json, session);
  json.key("checkpoints_count").integer(session.checkpoints);
  json.key("checkpoint_storage_bytes").integer(session.checkpoint_bytes);
  if (!session.display_name.empty()) json.key("display_name").string(session.display_name);
  json.key("user_metadata").strings(session.user_metadata).end_object();
}

}  // namespace

Result<Answer> handle_search_sessions(Exchange& exchange) {
  JsonBody body(exchange.body);
  const control::SessionQuery query = read_query(body.fields());
  const bool own = read_owner(body.fields(), exchange.user);
  TUFT_TRY(body_read(exchange, body.status()));
  control::SessionsFound found;
  if (own) found = exchange.control.catalog().search_sessions(exchange.user, query);
  JsonWriter json;
  json.begin_object().key("sessions").begin_array();
  for (const control::SessionFound& session : found.sessions) write_session(json, session, exchange.user);
  json.end_array().key("next_cursor");
  if (found.has_more) {
    const control::SessionFound& last = found.sessions.back();
    json.begin_object().key("last_created_at").string(last.created_at);
    json.key("last_session_id").string(last.id.str()).end_object();
  } else {
    json.null();
  }
  json.end_object();
  return json_answer(std::move(json).take());
}

}  // namespace tuft::api
