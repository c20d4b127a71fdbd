#include "machine_peaks.h"

#include <algorithm>
#include <atomic>
#include <cblas.h>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace tuft::bench {
namespace {

constexpr int kRounds = 7;

// Returns the seconds from the time when all threads are ready to the end of the last one.
template <typename Work>
double timed(int threads, Work work) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      ++ready;
      while (!go.load()) {
      }
      work(thread);
    });
  }
  while (ready.load() < threads) {
  }
  const auto begin = std::chrono::steady_clock::now();
  go = true;
  for (std::thread& thread : running) thread.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Matrices {
  explicit Matrices(int size) : a(size_t(size) * size, 0.5F), b(a), c(a) {}
  std::vector<float> a, b, c;
};

// Eight independent sums, so that the loop waits for memory and not for additions.
uint64_t sum(const uint64_t* data, size_t count) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= count; i += 8) {
    for (size_t lane = 0; lane < 8; ++lane) sums[lane] += data[i + lane];
  }
  uint64_t total = 0;
  for (const uint64_t value : sums) total += value;
  return total;
}

}  // namespace

double gemm_gflops(int threads) {
  constexpr int kSize = 1024;
  constexpr int kRepeats = 4;
  std::vector<Matrices> matrices(threads, Matrices(kSize));
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double seconds = timed(threads, [&](int thread) {
      Matrices& m = matrices[thread];
      for (int i = 0; i < kRepeats; ++i) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, kSize, kSize, kSize, 1.0F, m.a.data(), kSize, m.b.data(),
                    kSize, 0.0F, m.c.data(), kSize);
      }
    });
    best = std::max(best, 2.0 * kSize * kSize * kSize * kRepeats * threads / seconds * 1e-9);
  }
  return best;
}

double read_gigabytes_per_second(int threads) {
  constexpr size_t kBytes = size_t{1} << 30;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  madvise(memory, kBytes, MADV_HUGEPAGE);
  std::memset(memory, 1, kBytes);
  const size_t share = kBytes / sizeof(uint64_t) / static_cast<size_t>(threads);
  std::atomic<uint64_t> sink{0};
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double seconds = timed(threads, [&](int thread) {
      sink += sum(static_cast<const uint64_t*>(memory) + share * static_cast<size_t>(thread), share);
    });
    best = std::max(best, static_cast<double>(kBytes) / seconds * 1e-9);
  }
  munmap(memory, kBytes);
  return best;
}

}  // namespace tuft::bench
