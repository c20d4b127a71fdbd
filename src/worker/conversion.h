// Converts between the messages of passes and the engine's types (samples: sample_messages.h). Everything in a message
// is checked here before use: a length, shape, dtype or index that does not fit is a kInvalidArgument that names datum
// and key, never values.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/trainer.h"
#include "tinker/public.pb.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::worker {

// `base_model` is named in error messages.
Result<engine::TrainRequest> to_train_request(const tinker_public::ForwardBackwardRequest& request,
                                              engine::AdapterId adapter, const std::string& base_model);

// Reads the custom loss of a request, and what its datums give for it. Works for about a millisecond, and less for each
// datum.
Status read_custom_loss(const v1::CustomLoss& message, engine::TrainRequest& request);

// The result has one record for each series of consecutive datums with the same trailing shape.
tinker_public::ForwardBackwardOutput to_output(const engine::TrainOutput& output);

}  // namespace tuft::worker
