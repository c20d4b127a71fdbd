// Makes the engine from open weights. make_native_engine() opens the files and calls this.
#pragma once

#include <memory>

#include "engine/native/native_engine.h"
#include "engine/native/weights.h"

namespace tuft::engine::native {

Result<std::unique_ptr<Engine>> make_engine(const ModelSpec& spec, const TensorSource& source, NativeOptions options);

}  // namespace tuft::engine::native
