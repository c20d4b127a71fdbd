// Measures the peak of the arithmetic units.
#pragma once

#include "engine/back_end/thread_pool.h"

namespace tuft::engine::native {

// Returns the f32 fused multiply-adds per second of all threads of the pool together, each lane counting as two
// operations: the sum over threads of the median of short rounds. Takes some milliseconds and reads nothing from
// memory. Other programs on the processors lower the result only if they slow down the core itself.
double measure_peak_flops(ThreadPool& pool);

}  // namespace tuft::engine::native
