#pragma once

#include <cstdint>

namespace tuft::engine {

// Returns well mixed bits: one step of splitmix64 (Steele, Lea and Flood 2014).
inline uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace tuft::engine
