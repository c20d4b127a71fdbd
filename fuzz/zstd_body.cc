// Decompresses request bodies with Content-Encoding: zstd.
#include <string>

#include "api/routing/media.h"
#include "target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t kMost = 1 << 16;
  const auto body = tuft::api::decode_body(std::string(tuft::fuzz::text_of(data, size)), "zstd", {kMost});
  if (body.ok()) tuft::fuzz::require(static_cast<int64_t>(body->size()) <= kMost);
  return 0;
}
