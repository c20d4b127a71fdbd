#include "base/id.h"

#include <array>
#include <cstdint>
#include <sys/random.h>

#include "base/check.h"

namespace tuft {
namespace {

void fill_random(void* out, size_t size) {
  const ssize_t got = ::getrandom(out, size, 0);
  TUFT_CHECK(got == static_cast<ssize_t>(size), "the operating system gave no random bytes");
}

uint64_t seed() {
  uint64_t value = 0;
  fill_random(&value, sizeof value);
  return value;
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
  thread_local uint64_t state = seed();
  uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace tuft
