// Encodes training runs and checkpoints as the SDK's models expect them.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "api/exchange.h"
#include "api/json/json_writer.h"
#include "control/views/catalog.h"

namespace tuft::api {

void write_checkpoint(JsonWriter& json, const control::CheckpointView& checkpoint);
void write_training_run(JsonWriter& json, const control::TrainingRunView& run);

// Writes the key `user_metadata` with its value, which is null if there are no entries.
void write_metadata(JsonWriter& json, const std::map<std::string, std::string>& metadata);

// A response with status 204.
Response no_content();

// Returns true if `text` has at most `bytes_max` bytes and no control characters.
bool is_label(std::string_view text, size_t bytes_max);
inline constexpr size_t kProjectBytesMax = 256;  // of a project_id

}  // namespace tuft::api
