#include "base/id.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <pthread.h>
#include <sys/random.h>

#include "base/check.h"

namespace tuft {
namespace {

void fill_random(void* out, size_t size) {
  const ssize_t got = ::getrandom(out, size, 0);
  TUFT_CHECK(got == static_cast<ssize_t>(size), "the operating system gave no random bytes");
}

// Changes in a child of fork(), so that it does not draw the same numbers as its parent.
constinit std::atomic<uint32_t> g_process{1};

struct Generator {
  uint64_t state = 0;
  uint32_t process = 0;
};

// Registered before main(): a fork() during a lazy initialization would leave it unfinished in the child for ever.
[[maybe_unused]] const int kWatching =
    ::pthread_atfork(nullptr, nullptr, [] { g_process.fetch_add(1, std::memory_order_relaxed); });

void start_generator(Generator& generator) {
  fill_random(&generator.state, sizeof generator.state);
  generator.process = g_process.load(std::memory_order_relaxed);
}

}  // namespace

std::string random_uuid() {
  std::array<uint8_t, 16> bytes{};
  fill_random(bytes.data(), bytes.size());
  bytes[6] = static_cast<uint8_t>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<uint8_t>((bytes[8] & 0x3f) | 0x80);
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  text.reserve(36);
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kHex[bytes[i] >> 4];
    text += kHex[bytes[i] & 15];
  }
  return text;
}

uint64_t random_u64() {
  // SplitMix64 (Steele, Lea, Flood 2014).
  thread_local constinit Generator generator;
  if (generator.process != g_process.load(std::memory_order_relaxed)) [[unlikely]]
    start_generator(generator);
  uint64_t z = (generator.state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace tuft
