// The type of the base model's weights in memory.
#pragma once

#include <cstdint>

namespace tuft::engine {

enum class WeightsDtype : uint8_t { kAuto, kFloat32, kBfloat16 };  // kAuto: bf16 if the file is bf16, else f32

}  // namespace tuft::engine
