// What GPUs can do at most, as their makers say.
#pragma once

#include <cstdint>
#include <string_view>

namespace tuft::engine {

enum class PeakType : uint8_t { kF32, kBf16 };

// `name` as the driver has it ("NVIDIA H100 80GB HBM3"). FLOP/s, dense (data sheets also give twice that, for matrices
// of which half is zero), with accumulation in f32; f32 is that of the vector units, without TF32. 0 for a device, or a
// part of one (MIG), that is not known.
double known_peak_flops(std::string_view name, PeakType type);

}  // namespace tuft::engine
