// Where a page of results ended. Internal to telemetry_store.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace tuft::telemetry_store::internal {

struct Cursor {
  Nanos time = 0;
  uint64_t first = 0, second = 0;
};

// Three hexadecimal numbers.
std::string encode_cursor(const Cursor& cursor);
// Errors: kInvalidArgument.
Result<Cursor> decode_cursor(std::string_view text);

}  // namespace tuft::telemetry_store::internal
