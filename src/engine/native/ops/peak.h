// What the arithmetic units can do at most.
#pragma once

#include "engine/native/thread_pool.h"

namespace tuft::engine::native {

// Fused multiply-adds of f32 on all threads of the pool at once, an operation of a lane counting two, a second: the
// best of a few short rounds (some milliseconds in all). Nothing is read from memory. Where others use the processors
// meanwhile it is too low.
double measure_peak_flops(ThreadPool& pool);

}  // namespace tuft::engine::native
