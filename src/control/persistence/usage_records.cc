#include "control/persistence/usage_records.h"

#include <algorithm>
#include <exception>
#include <iterator>

#include <nlohmann/json.hpp>

#include "control/persistence/record_text.h"
#include "control/types/whole_number.h"

namespace tuft::control {
namespace {

using Json = nlohmann::ordered_json;

constexpr UsageKind kKinds[] = {
    UsageKind::kTraining,       UsageKind::kSamplingPrefill, UsageKind::kSamplingPrefillCached,
    UsageKind::kSamplingOutput, UsageKind::kCheckpoint,      UsageKind::kStorage};

constexpr std::string_view kActions[] = {
    "checkpoint_saved",   "checkpoint_loaded",  "checkpoint_deleted",  "checkpoint_published", "checkpoint_unpublished",
    "checkpoint_ttl_set", "checkpoint_expired", "checkpoint_archived", "run_created",          "run_unloaded",
    "run_expired",        "session_created",    "session_ended"};
static_assert(std::size(kActions) == static_cast<size_t>(AuditAction::kSessionEnded) + 1);

Error unreadable(const char* what, const char* why) {
  return data_loss("the record of " + std::string(what) + " cannot be read: " + why, "bad_record");
}

}  // namespace

std::string_view usage_kind_name(UsageKind kind) {
  switch (kind) {
    case UsageKind::kTraining:
      return "training";
    case UsageKind::kSamplingPrefill:
      return "sampling_prefill";
    case UsageKind::kSamplingPrefillCached:
      return "sampling_prefill_cached";
    case UsageKind::kSamplingOutput:
      return "sampling_sample";
    case UsageKind::kCheckpoint:
      return "checkpoint";
    case UsageKind::kStorage:
      break;
  }
  return "storage";
}

std::string_view audit_action_name(AuditAction action) {
  return kActions[static_cast<size_t>(action)];
}

std::string to_json(const UsageRecord& record) {
  const UsageEvent& event = record.event;
  Json json;
  json["number"] = record.number;
  json["bucket_start"] = event.bucket_start;
  json["user_id"] = event.user.str();
  json["session_id"] = event.session.str();
  json["training_run_id"] = event.run.str();
  json["base_model"] = event.base_model;
  json["project_id"] = event.project_id;
  json["kind"] = usage_kind_name(event.kind);
  json["count"] = event.count;
  return text_of(json);
}

std::string to_json(const AuditRecord& record) {
  const AuditEvent& event = record.event;
  Json json;
  json["number"] = record.number;
  json["time"] = event.time;
  json["event"] = audit_action_name(event.action);
  json["user_id"] = event.user.str();
  json["owner_id"] = event.owner.str();
  json["session_id"] = event.session ? Json(event.session->str()) : Json(nullptr);
  json["training_run_id"] = event.run ? Json(event.run->str()) : Json(nullptr);
  json["tinker_path"] = json_or_null(event.tinker_path);
  json["purpose"] = event.purpose;
  return text_of(json);
}

// The JSON library throws for wrong types and for missing keys.
Result<UsageRecord> usage_from_json(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    UsageRecord record{.number = whole_number<uint64_t>(json, "number"), .event = {}};
    UsageEvent& event = record.event;
    event.bucket_start = whole_number<Nanos>(json, "bucket_start");
    event.user = UserId(json.at("user_id").get<std::string>());
    event.session = SessionId(json.at("session_id").get<std::string>());
    event.run = RunId(json.at("training_run_id").get<std::string>());
    event.base_model = json.at("base_model").get<std::string>();
    event.project_id = json.at("project_id").get<std::string>();
    event.count = whole_number<int64_t>(json, "count");
    const auto kind = json.at("kind").get<std::string>();
    for (const UsageKind known : kKinds) {
      if (usage_kind_name(known) != kind) continue;
      event.kind = known;
      return record;
    }
    return unreadable("token counts", "it names an unknown kind");
  } catch (const std::exception& error) {
    return unreadable("token counts", error.what());
  }
}

Result<AuditRecord> audit_from_json(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    AuditRecord record{.number = whole_number<uint64_t>(json, "number"), .event = {}};
    AuditEvent& event = record.event;
    event.time = whole_number<Nanos>(json, "time");
    const auto* action = std::find(std::begin(kActions), std::end(kActions), json.at("event").get<std::string>());
    if (action == std::end(kActions)) return unreadable("an audit event", "it names an unknown action");
    event.action = static_cast<AuditAction>(action - std::begin(kActions));
    event.user = UserId(json.at("user_id").get<std::string>());
    event.owner = UserId(json.at("owner_id").get<std::string>());
    if (!json.at("session_id").is_null()) event.session = SessionId(json.at("session_id").get<std::string>());
    if (!json.at("training_run_id").is_null()) event.run = RunId(json.at("training_run_id").get<std::string>());
    if (!json.at("tinker_path").is_null()) event.tinker_path = json.at("tinker_path").get<std::string>();
    event.purpose = json.at("purpose").get<std::string>();
    return record;
  } catch (const std::exception& error) {
    return unreadable("an audit event", error.what());
  }
}

}  // namespace tuft::control
