// The peak FLOP/s of GPUs, from the data sheets of their makers.
#pragma once

#include <cstdint>
#include <string_view>

namespace tuft::engine {

enum class PeakType : uint8_t { kF32, kBf16 };

// Returns dense FLOP/s with accumulation in f32 (data sheets also state twice the value, for sparse matrices). `name`
// is the driver's, such as "NVIDIA H100 80GB HBM3". kF32 means the vector units, without TF32. Returns 0 for an unknown
// device and for a part of a device (MIG).
double known_peak_flops(std::string_view name, PeakType type);

// Returns more than 0 for every GPU: of a part of a device the value of the whole, and of an unknown device the largest
// of all that are known.
double assumed_peak_flops(std::string_view name, PeakType type);

}  // namespace tuft::engine
