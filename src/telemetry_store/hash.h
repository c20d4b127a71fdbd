// A fast hash of bytes for checksums, dictionaries and Bloom filters; not for adversaries. Internal to telemetry_store.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "telemetry_store/otlp_reader.h"

namespace tuft::telemetry_store::internal {

inline uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_of(std::string_view bytes, uint64_t seed = 0) {
  constexpr uint64_t kA = 0xa0761d6478bd642f;
  constexpr uint64_t kB = 0xe7037ed1a0b428db;
  const auto word = [](const char* at) {
    uint64_t value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  uint64_t state = seed ^ kA;
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left > 16; at += 16, left -= 16) state = mix(word(at) ^ kB, word(at + 8) ^ state);
  char tail[16] = {};
  if (left != 0) std::memcpy(tail, at, left);
  return mix(kB ^ bytes.size(), mix(word(tail) ^ kB, word(tail + 8) ^ state));
}

// What a Bloom filter holds: strings of the dictionary, ids of traces, and ids of traces that a link names.
inline uint64_t hash_of_trace(const TraceId& id) {
  return mix(id.high ^ 0x8ebc6af09c88c6e3, id.low ^ 0x589965cc75374cc3);
}
inline uint64_t hash_of_link(const TraceId& id) {
  return mix(hash_of_trace(id), 0x1d8e4e27c47d124f);
}

}  // namespace tuft::telemetry_store::internal
