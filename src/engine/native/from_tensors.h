// The engine from weights that are already at hand: what make_native_engine() does after opening the files.
#pragma once

#include <memory>

#include "engine/native/native_engine.h"
#include "engine/native/weights.h"

namespace tuft::engine::native {

Result<std::unique_ptr<Engine>> make_engine(const ModelSpec& spec, const TensorSource& source, NativeOptions options);

}  // namespace tuft::engine::native
