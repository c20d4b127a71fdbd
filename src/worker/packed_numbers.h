// Numbers in the `bytes` fields of messages: little-endian and dense.
#pragma once

#include <bit>
#include <cstring>
#include <string>
#include <vector>

namespace tuft::worker {

static_assert(std::endian::native == std::endian::little,
              "the wire format is little-endian, and numbers are copied unchanged");

// Bytes at the end that are no whole number are left out.
template <typename T>
std::vector<T> read_numbers(const std::string& bytes) {
  std::vector<T> numbers(bytes.size() / sizeof(T));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(T));
  return numbers;
}

template <typename T>
std::string write_numbers(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

}  // namespace tuft::worker
