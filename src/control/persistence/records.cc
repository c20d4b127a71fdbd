#include "control/persistence/records.h"

#include <exception>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "control/persistence/record_text.h"
#include "control/types/whole_number.h"

namespace tuft::control {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
std::optional<T> optional_value(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return std::nullopt;
  if constexpr (std::is_integral_v<T>) {
    return whole_number<T>(json, key);
  } else {
    return found->get<T>();
  }
}

template <typename Tag>
Id<Tag> id_value(const Json& json, const char* key) {
  return Id<Tag>(optional_value<std::string>(json, key).value_or(""));
}

Json ref_json(const std::optional<CheckpointRef>& ref) {
  if (!ref) return nullptr;
  return {{"path", ref->path}, {"future_id", ref->future_number}};
}

std::optional<CheckpointRef> ref_value(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return std::nullopt;
  return CheckpointRef{found->at("path").get<std::string>(), whole_number<uint64_t>(*found, "future_id")};
}

// The JSON library throws for wrong types and for missing keys.
template <typename Record, typename Read>
Result<Record> read_record(std::string_view text, const char* what, Read read) {
  try {
    const Json json = Json::parse(text);
    Record record;
    const Status status = read(json, record);
    if (!status.ok()) return status.error();
    return record;
  } catch (const std::exception& error) {
    return data_loss("the record of " + std::string(what) + " cannot be read: " + error.what(), "bad_record");
  }
}

}  // namespace

std::string to_json(const SessionRecord& record) {
  Json json;
  json["session_id"] = record.id.str();
  json["tags"] = record.request.tags;
  json["user_metadata"] = record.request.user_metadata;
  json["user_id"] = record.user.str();
  json["sdk_version"] = record.request.sdk_version;
  json["created_at"] = record.created_at;
  json["last_heartbeat"] = record.created_at;
  json["tuft"] = {{"project_id", record.request.project_id}, {"idempotency_key", record.request.idempotency_key}};
  Json& ours = json["tuft"];
  if (!record.request.display_name.empty()) ours["display_name"] = record.request.display_name;
  if (!record.ending.empty()) {
    ours["ending"] = record.ending;
    ours["finish"] = {{"reason", finish_reason_name(record.finish.reason)}, {"detail", record.finish.detail}};
  }
  return text_of(json);
}

Result<SessionRecord> session_from_json(std::string_view text) {
  return read_record<SessionRecord>(text, "a session", [](const Json& json, SessionRecord& record) -> Status {
    record.id = SessionId(json.at("session_id").get<std::string>());
    record.user = UserId(json.at("user_id").get<std::string>());
    record.created_at = json.at("created_at").get<std::string>();
    record.request.tags = json.at("tags").get<std::vector<std::string>>();
    record.request.user_metadata = json.at("user_metadata").get<std::map<std::string, std::string>>();
    record.request.sdk_version = json.at("sdk_version").get<std::string>();
    const Json& ours = json.at("tuft");
    record.request.project_id = ours.at("project_id").get<std::string>();
    record.request.idempotency_key = ours.at("idempotency_key").get<std::string>();
    // Older records do not have what follows.
    record.request.display_name = ours.value("display_name", std::string());
    record.ending = ours.value("ending", std::string());
    if (const auto finish = ours.find("finish"); finish != ours.end()) {
      const auto reason = finish_reason_of(finish->at("reason").get<std::string>());
      record.finish = {reason.value_or(FinishReason::kSuccess), finish->at("detail").get<std::string>()};
    }
    return {};
  });
}

std::string to_json(const RunRecord& record) {
  Json json;
  json["training_run_id"] = record.id.str();
  json["base_model"] = record.base_model;
  json["lora_rank"] = record.lora.rank;
  json["train_attn"] = record.lora.train_attn;
  json["train_mlp"] = record.lora.train_mlp;
  json["train_unembed"] = record.lora.train_unembed;
  json["target_modules"] = record.target_modules;
  json["target_parameters"] = Json::array();
  json["session_id"] = record.session.str();
  json["model_owner"] = record.user.str();
  json["user_metadata"] = record.metadata_apart ? Json::object() : Json(record.user_metadata);
  json["created_at"] = record.created_at;
  json["last_request_time"] = record.last_request_at;
  json["next_training_checkpoint"] = record.next_training_name;
  json["next_sampler_checkpoint"] = record.next_sampler_name;
  json["corrupted"] = false;
  json["next_seq_id"] = record.next_seq_id;
  Json& ours = json["tuft"];
  ours["seed"] = record.seed;
  ours["lora_alpha"] = record.lora_alpha;
  ours["optimizer"] = optimizer_name(record.optimizer);
  ours["next_ephemeral_checkpoint"] = record.next_ephemeral_name;
  ours["restore_point"] = ref_json(record.restore_point);
  ours["restore_with_optimizer"] = record.restore_with_optimizer;
  ours["restore_future_id"] = record.restore_number;
  ours["restore_seq_id"] = json_or_null(record.restore_seq_id);
  ours["restore_lacks_gradient"] = record.restore_lacks_gradient;
  ours["weights_changed"] = record.weights_changed;
  ours["gradient_pending"] = record.gradient_pending;
  ours["last_operation"] = record.last_operation;
  if (record.metadata_apart) ours["metadata_apart"] = true;
  return text_of(json);
}

Result<RunRecord> run_from_json(std::string_view text) {
  return read_record<RunRecord>(text, "a training run", [](const Json& json, RunRecord& record) -> Status {
    record.id = RunId(json.at("training_run_id").get<std::string>());
    record.base_model = json.at("base_model").get<std::string>();
    record.lora.rank = whole_number<int>(json, "lora_rank");
    record.lora.train_attn = json.at("train_attn").get<bool>();
    record.lora.train_mlp = json.at("train_mlp").get<bool>();
    record.lora.train_unembed = json.at("train_unembed").get<bool>();
    record.target_modules = json.at("target_modules").get<std::vector<std::string>>();
    record.session = SessionId(json.at("session_id").get<std::string>());
    record.user = UserId(json.at("model_owner").get<std::string>());
    record.user_metadata = json.at("user_metadata").get<std::map<std::string, std::string>>();
    record.created_at = json.at("created_at").get<std::string>();
    record.last_request_at = json.at("last_request_time").get<std::string>();
    record.next_training_name = whole_number<int>(json, "next_training_checkpoint");
    record.next_sampler_name = whole_number<int>(json, "next_sampler_checkpoint");
    record.next_seq_id = whole_number<int64_t>(json, "next_seq_id");
    const Json& ours = json.at("tuft");
    record.seed = whole_number<uint64_t>(ours, "seed");
    record.lora_alpha = ours.at("lora_alpha").get<double>();
    const auto optimizer = find_optimizer(ours.value("optimizer", std::string("adamw")));  // older records lack it
    if (!optimizer) return data_loss("the record of a training run names an unknown optimizer", "bad_record");
    record.optimizer = *optimizer;
    record.next_ephemeral_name = whole_number<int>(ours, "next_ephemeral_checkpoint");
    record.restore_point = ref_value(ours, "restore_point");
    record.restore_with_optimizer = ours.at("restore_with_optimizer").get<bool>();
    record.restore_number = whole_number<uint64_t>(ours, "restore_future_id");
    record.restore_seq_id = optional_value<int64_t>(ours, "restore_seq_id");
    record.restore_lacks_gradient = ours.value("restore_lacks_gradient", false);  // older records do not have it
    record.weights_changed = ours.at("weights_changed").get<bool>();
    record.gradient_pending = ours.at("gradient_pending").get<bool>();
    record.last_operation = ours.value("last_operation", std::string());  // older records do not have it
    record.metadata_apart = ours.value("metadata_apart", false);
    return {};
  });
}

std::string to_json(const RunMetadataRecord& record) {
  Json json;
  json["training_run_id"] = record.id.str();
  json["user_metadata"] = record.user_metadata;
  return text_of(json);
}

Result<RunMetadataRecord> run_metadata_from_json(std::string_view text) {
  return read_record<RunMetadataRecord>(
      text, "the metadata of a training run", [](const Json& json, RunMetadataRecord& record) -> Status {
        record.id = RunId(json.at("training_run_id").get<std::string>());
        record.user_metadata = json.at("user_metadata").get<std::map<std::string, std::string>>();
        return {};
      });
}

std::string to_json(const SamplerRecord& record) {
  Json json;
  json["sampling_session_id"] = record.id.str();
  json["session_id"] = record.session.str();
  json["model_id"] = record.id.str();
  json["base_model"] = record.base_model;
  json["user_id"] = record.user.str();
  json["model_path"] = record.checkpoint ? Json(record.checkpoint->path) : Json(nullptr);
  json["session_seq_id"] = record.seq_id;
  json["last_seq_id"] = -1;
  json["history"] = Json::array();
  json["tuft"] = {{"checkpoint", ref_json(record.checkpoint)}, {"created_at", record.created_at}};
  if (record.inflight) json["tuft"]["inflight"] = true;
  return text_of(json);
}

Result<SamplerRecord> sampler_from_json(std::string_view text) {
  return read_record<SamplerRecord>(text, "a sampling session", [](const Json& json, SamplerRecord& record) -> Status {
    record.id = SamplerId(json.at("sampling_session_id").get<std::string>());
    record.session = SessionId(json.at("session_id").get<std::string>());
    record.base_model = json.at("base_model").get<std::string>();
    record.user = UserId(json.at("user_id").get<std::string>());
    record.seq_id = whole_number<int64_t>(json, "session_seq_id");
    const Json& ours = json.at("tuft");
    record.checkpoint = ref_value(ours, "checkpoint");
    record.created_at = ours.at("created_at").get<std::string>();
    record.inflight = record.checkpoint && ours.value("inflight", false);
    return {};
  });
}

std::string to_json(const Checkpoint& checkpoint) {
  Checkpoint known = checkpoint;
  known.user_metadata.clear();
  known.own_metadata.clear();
  return to_metadata_json(known);
}

void give_metadata(std::vector<RunMetadataRecord> metadata, std::vector<RunRecord>& runs) {
  std::unordered_map<RunId, RunMetadataRecord*> by_run;
  for (RunMetadataRecord& one : metadata) by_run.emplace(one.id, &one);
  for (RunRecord& run : runs) {
    const auto found = by_run.find(run.id);
    if (run.metadata_apart && found != by_run.end()) run.user_metadata = std::move(found->second->user_metadata);
  }
}

}  // namespace tuft::control
