// What the arithmetic units can do at most.
#pragma once

#include "engine/native/thread_pool.h"

namespace tuft::engine::native {

// Fused multiply-adds of f32 on all threads of the pool at once, an operation of a lane counting two, a second: the sum
// of what each of them did in the median of short rounds (some milliseconds in all). Nothing is read from memory. Who
// shares the processors meanwhile makes it too low only where it slows down the core itself.
double measure_peak_flops(ThreadPool& pool);

}  // namespace tuft::engine::native
