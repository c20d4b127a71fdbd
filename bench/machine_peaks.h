// The peaks of this machine, as denominators. Measured with plain threads in the measured process itself, so that both
// have the same clock frequency and neighbours.
#pragma once

namespace tuft::bench {

// Returns the best of some f32 matrix products of 1024 x 1024 x 1024 by BLIS, one per thread; GFLOP/s of all threads.
double gemm_gflops(int threads);

// Returns the best of some sums over 1 GiB, which no cache holds; GB/s of all threads.
double read_gigabytes_per_second(int threads);

}  // namespace tuft::bench
