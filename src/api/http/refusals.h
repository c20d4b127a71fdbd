// The answers to requests that a connection cannot take.
#pragma once

#include <cstdint>
#include <optional>

#include "api/exchange.h"
#include "api/routing/dispatcher.h"
#include "base/error.h"
#include "config/config.h"

namespace tuft::api {

// The result of reading a head or body. kMalformed: it is not valid, or kChunkHeadBytesMax is exceeded.
// kHeaderTooLarge: limits.header_bytes_max is exceeded, or kHeaderFieldsMax, also by the trailer of a body.
// kNoRoomForHead: limits.unfinished_head_bytes_max is reached. kNoRoom and kNoShare: limits.receiving_bytes_max is
// reached, for all users or for this one.
enum class Read : uint8_t {
  kDone,
  kClosed,
  kTimedOut,
  kMalformed,
  kHeaderTooLarge,
  kNoRoomForHead,
  kBodyTooLarge,
  kNoRoom,
  kNoShare
};

// Makes the answer to a request whose head or body could not be read, and counts it; nothing if it was read or the
// client has disconnected. `admission` is empty if the head could not be read.
std::optional<Response> refusal_of(Read outcome, const Admission& admission, const config::Limits& limits);

// limits.sending_bytes_max is reached, for the user or for all.
Error no_room_for_answer(bool of_user, const config::Limits& limits);

}  // namespace tuft::api
