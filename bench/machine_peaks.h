// What this machine can do at best, to divide by. Measured with plain threads in the process that is measured itself,
// so that both see the same clock frequency and neighbours.
#pragma once

namespace tuft::bench {

// Best of some f32 matrix products of 1024 x 1024 x 1024 by BLIS, one per thread at a time; GFLOP/s of all threads.
double gemm_gflops(int threads);

// Best of some sums over 1 GiB that no cache holds; GB/s of all threads.
double read_gigabytes_per_second(int threads);

}  // namespace tuft::bench
