// Training runs and checkpoints as the SDK's models want them.
#pragma once

#include <string_view>

#include "api/exchange.h"
#include "api/json_writer.h"
#include "control/catalog.h"

namespace tuft::api {

void write_checkpoint(JsonWriter& json, const control::CheckpointView& checkpoint);
void write_training_run(JsonWriter& json, const control::TrainingRunView& run);

// Done, and nothing to tell.
Response no_content();

// One line of text: at most `bytes_max` bytes, no control characters.
bool is_label(std::string_view text, size_t bytes_max);

}  // namespace tuft::api
