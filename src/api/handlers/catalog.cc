// Sessions, training runs and checkpoints of a user.
#include "control/views/catalog.h"

#include <charconv>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include "api/handlers/handlers.h"
#include "api/json/catalog_json.h"
#include "api/json/error_mapping.h"
#include "api/json/json_reader.h"
#include "api/json/json_writer.h"
#include "api/routing/query.h"

namespace tuft::api {
namespace {

constexpr int64_t kRowsDefault = 20;
constexpr int64_t kRowsMax = 500;
constexpr int64_t kCheckpointsDefault = 100;
constexpr int64_t kCheckpointsMax = 1000;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

control::Scope read_scope(QueryFields& query) {
  const bool owned = query.word("access_scope", "owned", {"owned", "accessible"}) == "owned";
  return owned ? control::Scope::kOwned : control::Scope::kAccessible;
}

// Returns the id in the path. Text that cannot be an id gets the same answer as an unknown id.
template <typename IdType>
Result<IdType> path_id(const Exchange& exchange, const char* what) {
  if (!is_id(exchange.path_parameters[0])) return not_found(std::string("there is no such ") + what);
  return IdType(exchange.path_parameters[0]);
}

template <typename T, typename Write>
std::string list_json(std::string_view key, const control::Page<T>& page, bool paged, Write write) {
  JsonWriter json;
  json.begin_object().key(key).begin_array();
  for (const T& item : page.items) write(json, item);
  json.end_array().key("cursor");
  if (paged) {
    json.begin_object().key("offset").integer(page.offset).key("limit").integer(page.limit);
    json.key("total_count").integer(page.total).end_object();
  } else {
    json.null();
  }
  json.end_object();
  return std::move(json).take();
}

template <typename IdType>
void write_ids(JsonWriter& json, std::string_view key, const std::vector<IdType>& ids) {
  json.key(key).begin_array();
  for (const IdType& id : ids) json.string(id.str());
  json.end_array();
}

}  // namespace

Result<Answer> handle_list_sessions(Exchange& exchange) {
  QueryFields query(exchange.query);
  const control::PageRequest page = query.page(kRowsDefault, kRowsMax);
  read_scope(query);  // only the owner may see a session
  TUFT_TRY(query.status());
  const auto sessions = exchange.control.catalog().sessions(exchange.user, page);
  return json_answer(list_json("sessions", sessions, true,
                               [](JsonWriter& json, const control::SessionId& id) { json.string(id.str()); }));
}

Result<Answer> handle_get_session(Exchange& exchange) {
  QueryFields query(exchange.query);
  read_scope(query);
  TUFT_TRY(query.status());
  TUFT_ASSIGN(const auto id, path_id<control::SessionId>(exchange, "session"));
  TUFT_ASSIGN(const control::SessionView session, exchange.control.catalog().session(exchange.user, id));
  exchange.keys.session = id;
  JsonWriter json;
  json.begin_object();
  write_ids(json, "training_run_ids", session.runs);
  write_ids(json, "sampler_ids", session.samplers);
  json.key("user_metadata").strings(session.user_metadata);
  if (!session.display_name.empty()) json.key("display_name").string(session.display_name);
  json.end_object();
  return json_answer(std::move(json).take());
}

Result<Answer> handle_set_project(Exchange& exchange) {
  JsonBody body(exchange.body);
  const JsonFields fields = body.fields();
  const std::string project = fields.required_string("project_id");
  if (!is_label(project, kProjectBytesMax)) fields.problem("project_id", "must be a line of at most 256 bytes");
  fields.only({"project_id", "type"});
  TUFT_TRY(body_read(exchange, body.status()));
  TUFT_ASSIGN(const auto id, path_id<control::SessionId>(exchange, "session"));
  TUFT_TRY(exchange.control.catalog().set_project(exchange.user, id, project));
  exchange.keys.session = id;
  return Answer(no_content());
}

// A client without a body says nothing, and that all went well.
Result<Answer> handle_finish_session(Exchange& exchange) {
  control::SessionFinish finish;
  if (!exchange.body.empty()) {
    JsonBody body(exchange.body);
    const JsonFields fields = body.fields();
    if (const auto reason = fields.object("reason")) {
      const auto named = control::finish_reason_of(reason->required_string("type"));
      if (!named) reason->problem("type", "must be success, errored or interrupted");
      finish.reason = named.value_or(finish.reason);
      reason->only({"type"});
    }
    finish.detail = fields.string("detail", "");
    TUFT_TRY(body_read(exchange, body.status()));
  }
  TUFT_ASSIGN(const auto id, path_id<control::SessionId>(exchange, "session"));
  TUFT_TRY(exchange.control.end_session(exchange.user, id, finish));
  exchange.keys.session = id;
  return json_answer("{}");
}

Result<Answer> handle_list_training_runs(Exchange& exchange) {
  QueryFields query(exchange.query);
  const control::PageRequest page = query.page(kRowsDefault, kRowsMax);
  read_scope(query);  // public runs of other users are found by id only, never listed
  const std::string project = query.text("project_id", kProjectBytesMax).value_or("");
  TUFT_TRY(query.status());
  const auto runs = exchange.control.catalog().training_runs(exchange.user, page, project);
  return json_answer(list_json("training_runs", runs, true, write_training_run));
}

Result<Answer> handle_get_training_run(Exchange& exchange) {
  QueryFields query(exchange.query);
  const control::Scope scope = read_scope(query);
  TUFT_TRY(query.status());
  TUFT_ASSIGN(const auto id, path_id<control::RunId>(exchange, "training run"));
  TUFT_ASSIGN(const auto run, exchange.control.catalog().training_run(exchange.user, id, scope));
  exchange.keys.run = id;
  exchange.keys.base_model = run.base_model;
  exchange.keys.lora_rank = run.lora_rank;
  JsonWriter json;
  write_training_run(json, run);
  return json_answer(std::move(json).take());
}

namespace {

// SDKs before 0.28 refuse a whole list because of one checkpoint of the type "external". Clients that are not the SDK
// say no version, or one that is not of this form.
control::Listed listed_for(const RequestHeaders& headers) {
  constexpr int kFirstMinor = 28;
  std::string_view version = headers.client_version.empty() ? headers.sdk_version : headers.client_version;
  if (!version.starts_with("0.")) return control::Listed::kAll;
  version.remove_prefix(2);
  int minor = 0;
  const auto [end, code] = std::from_chars(version.data(), version.data() + version.size(), minor);
  const bool is_number = code == std::errc() && (end == version.data() + version.size() || *end == '.');
  return is_number && minor < kFirstMinor ? control::Listed::kLoadable : control::Listed::kAll;
}

}  // namespace

// The SDK shows the whole list and does not request pages.
Result<Answer> handle_list_run_checkpoints(Exchange& exchange) {
  QueryFields query(exchange.query);
  const bool paged = query.has("limit") || query.has("offset");
  const control::PageRequest page = query.page(paged ? kCheckpointsDefault : kNoLimit, kCheckpointsMax);
  TUFT_TRY(query.status());
  TUFT_ASSIGN(const auto id, path_id<control::RunId>(exchange, "training run"));
  TUFT_ASSIGN(const auto checkpoints,
              exchange.control.catalog().checkpoints_of(exchange.user, id, page, listed_for(exchange.headers)));
  exchange.keys.run = id;
  return json_answer(list_json("checkpoints", checkpoints, paged, write_checkpoint));
}

Result<Answer> handle_list_checkpoints(Exchange& exchange) {
  QueryFields query(exchange.query);
  const control::PageRequest page = query.page(kCheckpointsDefault, kCheckpointsMax);
  TUFT_TRY(query.status());
  const auto checkpoints = exchange.control.catalog().checkpoints(exchange.user, page, listed_for(exchange.headers));
  return json_answer(list_json("checkpoints", checkpoints, true, write_checkpoint));
}

}  // namespace tuft::api
