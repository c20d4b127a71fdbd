#include "telemetry/otlp/response.h"

#include <algorithm>

#include "telemetry/log/log_line.h"
#include "telemetry/otlp/wire.h"

namespace tuft::telemetry::internal::otlp {
namespace {

constexpr int64_t kRetrySecondsMax = 3600;

// A google.protobuf.Duration.
Nanos read_duration(std::string_view message) {
  int64_t seconds = 0;
  int64_t nanos = 0;
  for (WireReader reader(message); reader.next();) {
    if (reader.field() == 1) seconds = static_cast<int64_t>(reader.number());
    if (reader.field() == 2) nanos = static_cast<int64_t>(reader.number());
  }
  return std::clamp<int64_t>(seconds, 0, kRetrySecondsMax) * kSecond + std::clamp<int64_t>(nanos, 0, kSecond - 1);
}

void read_detail(std::string_view any, StatusDetails& out) {
  std::string_view type;
  std::string_view value;
  for (WireReader reader(any); reader.next();) {
    if (reader.field() == 1) type = reader.bytes();
    if (reader.field() == 2) value = reader.bytes();
  }
  if (!type.ends_with("/google.rpc.RetryInfo")) return;
  out.has_retry_info = true;
  for (WireReader reader(value); reader.next();) {
    if (reader.field() == 1) out.retry_after = read_duration(reader.bytes());
  }
}

}  // namespace

PartialSuccess read_partial_success(std::string_view response) {
  PartialSuccess out;
  for (WireReader reader(response); reader.next();) {
    if (reader.field() != 1) continue;
    for (WireReader partial(reader.bytes()); partial.next();) {
      if (partial.field() == 1) out.rejected = std::max<int64_t>(0, static_cast<int64_t>(partial.number()));
      if (partial.field() == 2) out.message = message_for_people(partial.bytes());
    }
  }
  return out;
}

StatusDetails read_status(std::string_view status) {
  StatusDetails out;
  for (WireReader reader(status); reader.next();) {
    if (reader.field() == 2) out.message = message_for_people(reader.bytes());
    if (reader.field() == 3) read_detail(reader.bytes(), out);
  }
  return out;
}

std::string message_for_people(std::string_view text) {
  constexpr size_t kBytesMax = 200;
  std::string out = to_utf8(text.substr(0, kBytesMax));
  std::replace_if(
      out.begin(), out.end(), [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; }, ' ');
  return out;
}

}  // namespace tuft::telemetry::internal::otlp
