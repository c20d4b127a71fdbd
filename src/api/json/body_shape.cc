#include "api/json/body_shape.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "api/json/error_mapping.h"
#include "api/json/wire_reader.h"
#include "base/json_shape.h"
#include "base/utf8.h"

namespace tuft::api {
namespace {

// An empty datum of libprotobuf, with its place in the batch and its copy for the worker.
constexpr int64_t kPartBytes = 256;
// A number of one digit with its comma: 27 bytes in simdjson (13.7 for each character of a text), and its copies on the
// way to a datum.
constexpr int64_t kValueBytes = 40;
constexpr size_t kUnchargedBytesMax = 64 << 10;

// ---- the messages of a pass

struct Shape;

struct Member {
  uint32_t number;
  enum class Kind : uint8_t { kMessage, kString, kVarints } kind;
  const Shape* shape = nullptr;
};

// The fields of a message that are not single values or plain bytes.
struct Shape {
  const Member* members;
  size_t size;

  const Member* find(uint32_t number) const {
    const Member* const found =
        std::find_if(members, members + size, [&](const Member& member) { return member.number == number; });
    return found == members + size ? nullptr : found;
  }
};

using Kind = Member::Kind;

constexpr Shape kLeaf{nullptr, 0};
constexpr Member kImageMembers[] = {{2, Kind::kString}};
constexpr Shape kImage{kImageMembers, 1};
constexpr Member kChunkMembers[] = {
    {1, Kind::kMessage, &kLeaf}, {2, Kind::kMessage, &kImage}, {3, Kind::kMessage, &kLeaf}};
constexpr Shape kChunk{kChunkMembers, 3};
constexpr Member kTensorMembers[] = {{2, Kind::kMessage, &kLeaf}, {4, Kind::kVarints}};
constexpr Shape kTensor{kTensorMembers, 2};
constexpr Member kTensorEntryMembers[] = {{1, Kind::kString}, {2, Kind::kMessage, &kTensor}};
constexpr Shape kTensorEntry{kTensorEntryMembers, 2};
constexpr Member kSequenceSpanMembers[] = {{1, Kind::kString}};
constexpr Shape kSequenceSpan{kSequenceSpanMembers, 1};
constexpr Member kSpanMembers[] = {{1, Kind::kMessage, &kSequenceSpan}, {2, Kind::kMessage, &kSequenceSpan}};
constexpr Shape kSpan{kSpanMembers, 2};
constexpr Member kDatumMembers[] = {{1, Kind::kMessage, &kChunk},
                                    {2, Kind::kMessage, &kTensorEntry},
                                    {3, Kind::kMessage, &kSpan},
                                    {4, Kind::kMessage, &kSpan}};
constexpr Shape kDatum{kDatumMembers, 4};
constexpr Member kConfigEntryMembers[] = {{1, Kind::kString}};
constexpr Shape kConfigEntry{kConfigEntryMembers, 1};
constexpr Member kConfigValueMembers[] = {{2, Kind::kString}};
constexpr Shape kConfigValue{kConfigValueMembers, 1};
constexpr Member kConfigV2EntryMembers[] = {{1, Kind::kString}, {2, Kind::kMessage, &kConfigValue}};
constexpr Shape kConfigV2Entry{kConfigV2EntryMembers, 2};
constexpr Member kPassMembers[] = {{1, Kind::kString},
                                   {3, Kind::kMessage, &kDatum},
                                   {4, Kind::kString},
                                   {5, Kind::kMessage, &kConfigEntry},
                                   {7, Kind::kMessage, &kConfigV2Entry}};
constexpr Shape kPass{kPassMembers, 5};

Error damaged(std::string_view what) {
  return invalid_argument("the body is not a tinker_public.ForwardBackwardRequest: " + std::string(what),
                          std::string(kInvalidProtobuf));
}

// Adds the parts of `message` to `parts`, and ends when there are more than `most`. The shapes are at most five levels
// deep.
Status count_parts(std::string_view message, const Shape& shape, int64_t most, int64_t& parts) {
  WireReader reader(message);
  WireField field;
  while (parts <= most && reader.next(field)) {
    ++parts;
    const Member* const member = field.type == WireField::Type::kBytes ? shape.find(field.number) : nullptr;
    if (member == nullptr) continue;
    switch (member->kind) {
      case Kind::kMessage:
        TUFT_TRY(count_parts(field.bytes, *member->shape, most, parts));
        break;
      case Kind::kString:
        if (!is_utf8(field.bytes)) return damaged("one of its strings is not UTF-8");
        break;
      case Kind::kVarints:
        parts += count_varints(field.bytes);
        break;
    }
  }
  if (reader.damaged()) return damaged("it is truncated or damaged");
  return {};
}

Status check_parts(int64_t parts, const config::Limits& limits) {
  if (parts <= limits.request_parts_max) return {};
  return Error{ErrorCode::kPayloadTooLarge,
               "the body has more than " + std::to_string(limits.request_parts_max) +
                   " parts (limits.request_parts_max): datums, chunks, tensors and their fields; send it in smaller "
                   "requests",
               "request_parts_max"};
}

Status charge(Exchange& exchange, int64_t bytes) {
  if (exchange.body.size() <= kUnchargedBytesMax) return {};
  return hold_memory(exchange, bytes + static_cast<int64_t>(exchange.body.size()));
}

}  // namespace

Result<int64_t> count_pass_parts(std::string_view message, int64_t most) {
  int64_t parts = 0;
  TUFT_TRY(count_parts(message, kPass, most, parts));
  return std::min(parts, most + 1);
}

Status admit_pass(Exchange& exchange) {
  TUFT_ASSIGN(const int64_t parts, count_pass_parts(exchange.body, exchange.limits.request_parts_max));
  TUFT_TRY(check_parts(parts, exchange.limits));
  return charge(exchange, parts * kPartBytes);
}

Status admit_json(Exchange& exchange) {
  const JsonShape shape = json_shape(exchange.body);
  const int64_t parts = shape.containers + shape.members;
  TUFT_TRY(check_parts(parts, exchange.limits));
  return charge(exchange, parts * kPartBytes + shape.values * kValueBytes);
}

}  // namespace tuft::api
