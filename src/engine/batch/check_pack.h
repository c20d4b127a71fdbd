// What every back end refuses before it computes.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/model_spec.h"

namespace tuft::engine {

// kInvalidArgument for a token that is not of the vocabulary.
Status check_tokens(const ModelSpec& model, std::span<const int32_t> tokens);
// kInvalidArgument for a pack that is not what engine.h says; whether its adapters are there, the back end knows.
Status check_pack(const ModelSpec& model, const Pack& pack);

}  // namespace tuft::engine
