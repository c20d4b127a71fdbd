#include "control/types/checkpoint.h"

#include <exception>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/time_text.h"
#include "control/types/whole_number.h"

namespace tuft::control {

std::string to_metadata_json(const Checkpoint& checkpoint) {
  nlohmann::ordered_json json;
  json["format_version"] = kMetadataVersion;
  json["model_id"] = checkpoint.path.run.str();
  json["name"] = checkpoint.path.name;
  json["base_model"] = checkpoint.base_model;
  json["checkpoint_type"] = checkpoint_type_name(checkpoint.path.kind);
  json["created_at"] = checkpoint.created_at;
  json["session_id"] = checkpoint.session.str();
  json["project_id"] = checkpoint.project_id;
  json["user_metadata"] = checkpoint.user_metadata;
  if (!checkpoint.own_metadata.empty()) json["checkpoint_metadata"] = checkpoint.own_metadata;
  json["tinker_path"] = checkpoint.path.str();
  json["owner_name"] = checkpoint.owner.str();
  json["size_bytes"] = checkpoint.size_bytes;
  json["lora_rank"] = checkpoint.lora_rank;
  json["lora_alpha"] = checkpoint.lora_alpha;
  json["train_attn"] = checkpoint.train_attn;
  json["train_mlp"] = checkpoint.train_mlp;
  json["train_unembed"] = checkpoint.train_unembed;
  json["target_modules"] = checkpoint.target_modules;
  json["optimizer"] = optimizer_name(checkpoint.optimizer);
  json["target_parameters"] = nlohmann::json::array();
  json["public"] = checkpoint.is_public;
  if (checkpoint.encrypted) json["encrypted"] = true;
  json["ephemeral"] = checkpoint.ephemeral;
  if (checkpoint.servers_save) json["servers_save"] = true;
  json["expires_at"] = checkpoint.expires_at ? nlohmann::ordered_json(iso_time(*checkpoint.expires_at))
                                             : nlohmann::ordered_json(nullptr);
  json["future_id"] = checkpoint.future_number;
  json["seq_id"] = checkpoint.seq_id ? nlohmann::ordered_json(*checkpoint.seq_id) : nlohmann::ordered_json(nullptr);
  // Metadata from clients need not be UTF-8, and must not make a save fail.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Result<Checkpoint> from_metadata_json(std::string_view text) {
  // The JSON library throws for wrong types and for missing keys.
  try {
    const auto json = nlohmann::json::parse(text);
    if (const int version = whole_number(json, "format_version", kMetadataVersion); version != kMetadataVersion) {
      return data_loss("metadata.json has format_version " + std::to_string(version) + "; this server reads " +
                           std::to_string(kMetadataVersion),
                       "bad_metadata");
    }
    Checkpoint checkpoint;
    TUFT_ASSIGN(checkpoint.path, parse_checkpoint_path(json.at("tinker_path").get<std::string>()));
    checkpoint.owner = UserId(json.at("owner_name").get<std::string>());
    checkpoint.session = SessionId(json.value("session_id", std::string()));
    checkpoint.project_id = json.value("project_id", std::string());
    checkpoint.user_metadata = json.value("user_metadata", checkpoint.user_metadata);
    checkpoint.own_metadata = json.value("checkpoint_metadata", checkpoint.own_metadata);
    checkpoint.base_model = json.at("base_model").get<std::string>();
    checkpoint.created_at = json.at("created_at").get<std::string>();
    checkpoint.lora_rank = whole_number<int>(json, "lora_rank");
    checkpoint.lora_alpha = json.at("lora_alpha").get<double>();
    checkpoint.train_attn = json.at("train_attn").get<bool>();
    checkpoint.train_mlp = json.at("train_mlp").get<bool>();
    checkpoint.train_unembed = json.at("train_unembed").get<bool>();
    checkpoint.target_modules = json.at("target_modules").get<std::vector<std::string>>();
    const auto optimizer = find_optimizer(json.value("optimizer", std::string("adamw")));  // older files lack it
    if (!optimizer) return data_loss("metadata.json names an optimizer that this server does not know", "bad_metadata");
    checkpoint.optimizer = *optimizer;
    checkpoint.size_bytes = whole_number(json, "size_bytes", int64_t{0});
    checkpoint.is_public = json.value("public", false);
    checkpoint.encrypted = json.value("encrypted", false);
    checkpoint.ephemeral = json.value("ephemeral", false);
    checkpoint.servers_save = json.value("servers_save", false);
    checkpoint.future_number = whole_number(json, "future_id", uint64_t{0});
    if (const auto seq = json.find("seq_id"); seq != json.end() && seq->is_number()) {
      checkpoint.seq_id = whole_number<int64_t>(json, "seq_id");
    }
    if (const auto expiry = json.find("expires_at"); expiry != json.end() && !expiry->is_null()) {
      checkpoint.expires_at = parse_iso_time(expiry->get<std::string>());
      if (!checkpoint.expires_at)
        return data_loss("metadata.json has an expires_at that is not a time", "bad_metadata");
    }
    return checkpoint;
  } catch (const std::exception& error) {
    return data_loss("metadata.json of a checkpoint cannot be read: " + std::string(error.what()), "bad_metadata");
  }
}

CheckpointUse use_of(const Checkpoint& checkpoint) {
  constexpr int64_t kEntryBytes = 128;  // of a map, without its characters
  constexpr int64_t kCountBytes = 4096;
  int64_t metadata = 0;
  for (const auto* entries : {&checkpoint.user_metadata, &checkpoint.own_metadata}) {
    for (const auto& [key, value] : *entries) {
      metadata += kEntryBytes + static_cast<int64_t>(key.size() + value.size());
    }
  }
  return {.bytes = checkpoint.size_bytes, .count = 1 + metadata / kCountBytes};
}

std::string iso_time(Nanos wall) {
  std::string text = time_text(wall);
  return text.replace(text.size() - 1, 1, "+00:00");
}

std::optional<Nanos> parse_iso_time(std::string_view text) {
  const std::optional<Nanos> time = parse_time_text(text);
  return time && iso_time(*time) == text ? time : std::nullopt;
}

Nanos expiry_after(Nanos wall, int64_t seconds) {
  constexpr Nanos kLatest = 9'000'000'000 * kSecond;  // in 2255; later ones do not fit into Nanos
  return seconds >= (kLatest - wall) / kSecond ? kLatest : wall + seconds * kSecond;
}

}  // namespace tuft::control
