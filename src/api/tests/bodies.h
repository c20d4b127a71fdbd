// Bodies of requests as clients encode them.
#pragma once

#include <initializer_list>
#include <string>
#include <zstd.h>

#include "api/tests/test_client.h"

namespace tuft::api {

inline const Headers kProtobufHeaders = {{"Content-Type", "application/x-protobuf"}};

// Returns `plain` as one frame of Zstandard that states its size.
inline std::string zstd(const std::string& plain) {
  std::string frame(ZSTD_compressBound(plain.size()), '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), plain.data(), plain.size(), 1));
  return frame;
}

// Returns the bytes of an array of `values`.
template <typename T>
std::string bytes_of(std::initializer_list<T> values) {
  std::string bytes;
  for (const T value : values) bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
  return bytes;
}

}  // namespace tuft::api
