#include "control/persistence/config_signature.h"

#include <exception>
#include <set>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "control/types/checkpoint.h"  // iso_time
#include "control/types/whole_number.h"

namespace tuft::control {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;

// Holds only what the meaning of stored weights depends on; everything else may change between two starts.
Json models_json(const config::ServerConfig& config) {
  Json models = Json::object();
  for (const config::ModelConfig& model : config.supported_models) {
    models[model.model_name] = {{"model_path", model.model_path.string()},
                                {"lora_alpha_ratio", model.lora_alpha_ratio}};
  }
  return models;
}

Json users_json(const config::ServerConfig& config) {
  std::set<std::string> users;
  for (const auto& [key, user] : config.authorized_users) users.insert(user);
  return users;
}

Json config_data(const config::ServerConfig& config) {
  Json data;
  data["supported_models"] = models_json(config);
  data["checkpoint_dir"] = config.bucket ? bucket::address_of(config.bucket->settings) : config.checkpoint_dir.string();
  data["model_owner"] = config.model_owner;
  data["authorized_users"] = users_json(config);
  data["telemetry"] = {{"enabled", config.telemetry.enabled},
                       {"service_name", config.telemetry.service_name.value_or("tuft")}};
  return data;
}

Error changed_field(const std::string& store, const std::string& field, const std::string& is, const std::string& was) {
  return failed_precondition(
      "configuration mismatch: " + store + " holds the state of a server whose " + field + " was " + was +
          ", and it is " + is +
          " now. Either change it back, or choose another persistence.namespace (the old state stays), or remove the "
          "old state with `tuft clear persistence` (checkpoints stay)",
      "config_signature");
}

Status check_models(const Json& stored, const Json& current, const std::string& store) {
  for (const auto& [name, model] : stored.items()) {
    const std::string field = "supported_models[" + name + "]";
    const auto now = current.find(name);
    if (now == current.end()) return changed_field(store, field, "not there", "there");
    for (const auto& [key, value] : model.items()) {
      if (!now->contains(key) || now->at(key) == value) continue;
      return changed_field(store, field + "." + key, now->at(key).dump(), value.dump());
    }
  }
  return {};
}

// The name of a field in the record is TuFT's name in lower case.
std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

Status check_fields(const Json& stored, const config::ServerConfig& config, const std::string& store) {
  const Json current = config_data(config);
  for (const std::string& name : config.persistence.check_fields) {
    const std::string field = lower(name);
    // A field that is missing in one of the two does not count as a difference.
    if (!stored.contains(field) || !current.contains(field)) continue;
    if (field == "supported_models") {
      TUFT_TRY(check_models(stored.at(field), current.at(field), store));
    } else if (stored.at(field) != current.at(field)) {
      return changed_field(store, field, current.at(field).dump(), stored.at(field).dump());
    }
  }
  return {};
}

}  // namespace

std::string make_signature(const config::ServerConfig& config) {
  Json json;
  json["config_data"] = config_data(config);
  json["created_at"] = iso_time(system_clock().wall());
  json["namespace"] = config.persistence.name_space;
  json["tuft"] = {{"version", kVersion}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Status check_signature(std::string_view stored, const config::ServerConfig& config, const std::string& store) {
  try {
    const Json json = Json::parse(stored);
    if (!json.contains("tuft")) {
      return failed_precondition(
          store + ": namespace \"" + config.persistence.name_space +
              "\" holds the state of TuFT's own server, which this one does not take over. Choose "
              "another persistence.namespace, or remove it with `tuft clear persistence`",
          "config_signature");
    }
    if (const int version = whole_number<int>(json.at("tuft"), "version"); version > kVersion) {
      return failed_precondition(store + " holds state of version " + std::to_string(version) +
                                     "; this tuft knows up to " + std::to_string(kVersion) +
                                     ". Use a newer tuft, or choose another persistence.namespace",
                                 "config_signature");
    }
    return check_fields(json.at("config_data"), config, store);
  } catch (const std::exception& error) {
    return data_loss(store + ": its config_signature cannot be read: " + error.what(), "config_signature");
  }
}

}  // namespace tuft::control
