// How the base model's weights are held in memory.
#pragma once

#include <cstdint>

namespace tuft::engine {

enum class WeightsDtype : uint8_t { kAuto, kFloat32, kBfloat16 };  // kAuto: bf16 where the file is bf16, else f32

}  // namespace tuft::engine
