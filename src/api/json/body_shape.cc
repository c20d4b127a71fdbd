#include "api/json/body_shape.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

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
  enum class Kind : uint8_t { kMessage, kString, kBytes, kVarint, kVarints, kDouble };
  Kind kind;
  const Shape* shape = nullptr;  // of a message
};

// A message: its name, and its fields in the order of their numbers, which begin with 1 and have no gaps.
struct Shape {
  std::string_view name;
  std::span<const Member> members;

  const Member* find(uint32_t number) const {
    return number >= 1 && number <= members.size() ? &members[number - 1] : nullptr;
  }
};

using Kind = Member::Kind;

constexpr Member kText[] = {{Kind::kBytes}};
constexpr Shape kTextChunk{"EncodedTextChunk", kText};
constexpr Shape kDmel{"DmelChunk", kText};
constexpr Member kImageMembers[] = {{Kind::kBytes}, {Kind::kString}, {Kind::kVarint}};
constexpr Shape kImage{"ImageChunk", kImageMembers};
constexpr Member kChunkMembers[] = {{Kind::kMessage, &kTextChunk}, {Kind::kMessage, &kImage}, {Kind::kMessage, &kDmel}};
constexpr Shape kChunk{"Chunk", kChunkMembers};
constexpr Member kSparseMembers[] = {{Kind::kBytes}, {Kind::kBytes}, {Kind::kBytes}};
constexpr Shape kSparse{"SparseCsr", kSparseMembers};
constexpr Member kTensorMembers[] = {{Kind::kBytes}, {Kind::kMessage, &kSparse}, {Kind::kVarint}, {Kind::kVarints}};
constexpr Shape kTensor{"Tensor", kTensorMembers};
constexpr Member kTensorEntryMembers[] = {{Kind::kString}, {Kind::kMessage, &kTensor}};
constexpr Shape kTensorEntry{"Datum.loss_fn_inputs", kTensorEntryMembers};
constexpr Member kSequenceSpanMembers[] = {{Kind::kString}, {Kind::kVarint}, {Kind::kVarint}};
constexpr Shape kSequenceSpan{"SequenceSpan", kSequenceSpanMembers};
constexpr Member kSpanMembers[] = {{Kind::kMessage, &kSequenceSpan}, {Kind::kMessage, &kSequenceSpan}};
constexpr Shape kSpan{"ProvenanceSpan", kSpanMembers};
constexpr Member kDatumMembers[] = {
    {Kind::kMessage, &kChunk}, {Kind::kMessage, &kTensorEntry}, {Kind::kMessage, &kSpan}, {Kind::kMessage, &kSpan}};
constexpr Shape kDatum{"Datum", kDatumMembers};
constexpr Member kConfigEntryMembers[] = {{Kind::kString}, {Kind::kDouble}};
constexpr Shape kConfigEntry{"ForwardBackwardRequest.loss_fn_config", kConfigEntryMembers};
constexpr Member kConfigValueMembers[] = {{Kind::kDouble}, {Kind::kString}};
constexpr Shape kConfigValue{"LossConfigValue", kConfigValueMembers};
constexpr Member kConfigV2EntryMembers[] = {{Kind::kString}, {Kind::kMessage, &kConfigValue}};
constexpr Shape kConfigV2Entry{"ForwardBackwardRequest.loss_fn_config_v2", kConfigV2EntryMembers};
constexpr Member kPassMembers[] = {{Kind::kString},
                                   {Kind::kVarint},
                                   {Kind::kMessage, &kDatum},
                                   {Kind::kString},
                                   {Kind::kMessage, &kConfigEntry},
                                   {Kind::kVarint},
                                   {Kind::kMessage, &kConfigV2Entry}};
constexpr Shape kPass{"ForwardBackwardRequest", kPassMembers};

// Returns whether a field of this kind can stand on the wire so. libprotobuf treats any other form as an unknown field.
bool has_form(Kind kind, WireField::Type type) {
  switch (kind) {
    case Kind::kMessage:
    case Kind::kString:
    case Kind::kBytes:
      return type == WireField::Type::kBytes;
    case Kind::kVarint:
      return type == WireField::Type::kVarint;
    case Kind::kVarints:  // packed or not
      return type == WireField::Type::kBytes || type == WireField::Type::kVarint;
    case Kind::kDouble:
      return type == WireField::Type::kFixed64;
  }
  return false;
}

Error not_a_request(std::string_view what) {
  return invalid_argument("the body is not a tinker_public.ForwardBackwardRequest: " + std::string(what),
                          std::string(kInvalidProtobuf));
}

Error unknown(const Shape& shape, uint32_t number) {
  return invalid_argument("field " + std::to_string(number) + " of a " + std::string(shape.name) +
                              ": this server does not know it, and what it asks for could change the result; use an "
                              "SDK of the versions that the server is tested with, or a newer server",
                          "unknown_field");
}

// Adds the parts of `message` to what was found, and ends when there are more than `most`. The shapes are at most five
// levels deep.
Status scan(std::string_view message, const Shape& shape, int64_t most, PassShape& found) {
  WireReader reader(message);
  WireField field;
  while (found.parts <= most && reader.next(field)) {
    ++found.parts;
    const Member* const member = shape.find(field.number);
    if (member == nullptr || !has_form(member->kind, field.type)) {
      if (found.known.ok()) found.known = unknown(shape, field.number);
      continue;
    }
    if (member->kind == Kind::kMessage) {
      TUFT_TRY(scan(field.bytes, *member->shape, most, found));
    } else if (member->kind == Kind::kString) {
      if (!is_utf8(field.bytes)) return not_a_request("one of its strings is not UTF-8");
    } else if (member->kind == Kind::kVarints) {
      found.parts += count_varints(field.bytes);
    }
  }
  if (reader.damaged()) return not_a_request("it is truncated or damaged");
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

Result<PassShape> scan_pass(std::string_view message, int64_t most) {
  PassShape found;
  TUFT_TRY(scan(message, kPass, most, found));
  found.parts = std::min(found.parts, most + 1);
  return found;
}

Result<Status> admit_pass(Exchange& exchange) {
  TUFT_ASSIGN(PassShape found, scan_pass(exchange.body, exchange.limits.request_parts_max));
  TUFT_TRY(check_parts(found.parts, exchange.limits));
  TUFT_TRY(charge(exchange, found.parts * kPartBytes));
  return std::move(found.known);
}

Status admit_json(Exchange& exchange) {
  const JsonShape shape = json_shape(exchange.body);
  const int64_t parts = shape.containers + shape.members;
  TUFT_TRY(check_parts(parts, exchange.limits));
  return charge(exchange, parts * kPartBytes + shape.values * kValueBytes);
}

}  // namespace tuft::api
