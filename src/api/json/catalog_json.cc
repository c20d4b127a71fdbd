#include "api/json/catalog_json.h"

#include <algorithm>

namespace tuft::api {
namespace {

template <typename Write, typename T>
void write_optional(JsonWriter& json, std::string_view key, const std::optional<T>& value, Write write) {
  json.key(key);
  if (value) {
    write(json, *value);
  } else {
    json.null();
  }
}

}  // namespace

void write_metadata(JsonWriter& json, const std::map<std::string, std::string>& metadata) {
  json.key("user_metadata");
  if (metadata.empty()) {
    json.null();
  } else {
    json.strings(metadata);
  }
}

void write_checkpoint(JsonWriter& json, const control::CheckpointView& checkpoint) {
  json.begin_object().key("checkpoint_id").string(checkpoint.checkpoint_id);
  json.key("checkpoint_type").string(control::checkpoint_type_name(checkpoint.kind));
  json.key("time").string(checkpoint.created_at).key("tinker_path").string(checkpoint.tinker_path);
  json.key("size_bytes").integer(checkpoint.size_bytes).key("public").boolean(checkpoint.is_public);
  write_optional(json, "expires_at", checkpoint.expires_at,
                 [](JsonWriter& out, const std::string& time) { out.string(time); });
  write_metadata(json, checkpoint.user_metadata);
  json.end_object();
}

void write_training_run(JsonWriter& json, const control::TrainingRunView& run) {
  json.begin_object().key("training_run_id").string(run.run.str()).key("base_model").string(run.base_model);
  json.key("model_owner").string(run.owner.str()).key("is_lora").boolean(true).key("lora_rank").integer(run.lora_rank);
  json.key("corrupted").boolean(run.corrupted).key("last_request_time").string(run.last_request_time);
  write_optional(json, "last_checkpoint", run.last_checkpoint, write_checkpoint);
  write_optional(json, "last_sampler_checkpoint", run.last_sampler_checkpoint, write_checkpoint);
  write_metadata(json, run.user_metadata);
  json.end_object();
}

Response no_content() {
  Response response;
  response.status = 204;
  return response;
}

bool is_label(std::string_view text, size_t bytes_max) {
  return text.size() <= bytes_max && std::none_of(text.begin(), text.end(), [](char c) {
           return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
         });
}

}  // namespace tuft::api
