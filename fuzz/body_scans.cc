// Compares the scans that judge a body before it is decoded with what the decoders make of it: for a body that a
// decoder accepts, a scan counts at least what the decoder makes.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <simdjson.h>
#include <string>
#include <string_view>
#include <vector>

#include "api/json/body_shape.h"
#include "base/json_shape.h"
#include "target.h"
#include "tinker/public.pb.h"

namespace {

// What a pass costs at most for each part, and for each byte of the body; and once (body_shape.cc charges the same).
constexpr int64_t kPartBytes = 256;
constexpr int64_t kMessageBytes = 1024;

// Counts the fields that are set, the elements of repeated ones and those of all messages inside.
int64_t parts_of(const google::protobuf::Message& message);

int64_t parts_of_field(const google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const bool is_message = field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE;
  if (!field.is_repeated()) return 1 + (is_message ? parts_of(reflection.GetMessage(message, &field)) : 0);
  const int size = reflection.FieldSize(message, &field);
  int64_t parts = size;
  for (int i = 0; is_message && i < size; ++i) {
    parts += parts_of(reflection.GetRepeatedMessage(message, &field, i));
  }
  return parts;
}

// The key and the value of an entry may be missing on the wire, and are set in memory all the same.
int64_t parts_of_map(const google::protobuf::Message& message, const google::protobuf::FieldDescriptor& map) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const google::protobuf::FieldDescriptor& value = *map.message_type()->map_value();
  const int size = reflection.FieldSize(message, &map);
  int64_t parts = size;
  const bool is_message = value.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE;
  for (int i = 0; is_message && i < size; ++i) {
    const google::protobuf::Message& entry = reflection.GetRepeatedMessage(message, &map, i);
    parts += parts_of(entry.GetReflection()->GetMessage(entry, &value));
  }
  return parts;
}

int64_t parts_of(const google::protobuf::Message& message) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  int64_t parts = message.GetReflection()->GetUnknownFields(message).field_count();
  for (const auto* field : fields)
    parts += field->is_map() ? parts_of_map(message, *field) : parts_of_field(message, *field);
  return parts;
}

bool has_unknown(const google::protobuf::Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  if (reflection.GetUnknownFields(message).field_count() > 0) return true;
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const int size = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < size; ++i) {
      const auto& inner = field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                               : reflection.GetMessage(message, field);
      if (has_unknown(inner)) return true;
    }
  }
  return false;
}

void check_pass(std::string_view body) {
  const auto found = tuft::api::scan_pass(body, std::numeric_limits<int32_t>::max());
  tinker_public::ForwardBackwardRequest request;
  if (!found.ok() || !request.ParseFromArray(body.data(), static_cast<int>(body.size()))) return;
  const int64_t counted = found->parts;
  const int64_t charged = kMessageBytes + counted * kPartBytes + 2 * static_cast<int64_t>(body.size());
  tuft::fuzz::require(static_cast<int64_t>(request.SpaceUsedLong()) <= charged);
  tuft::fuzz::require(parts_of(request) <= counted);  // reflection on maps takes memory
  // Ending early tells only that there are more.
  const int64_t most = counted / 2;
  tuft::fuzz::require(tuft::api::scan_pass(body, most)->parts == std::min(counted, most + 1));
  // A message without unknown fields of ours has none of libprotobuf's.
  tuft::fuzz::require(!found->known.ok() || !has_unknown(request));
}

struct Made {
  int64_t containers = 0, members = 0, values = 0;
  int depth = 0;
};

void count(simdjson::dom::element value, int depth, Made& made) {
  ++made.values;
  if (value.is_array() || value.is_object()) {
    ++made.containers;
    made.depth = std::max(made.depth, depth + 1);
  }
  if (value.is_array()) {
    for (const auto item : simdjson::dom::array(value)) count(item, depth + 1, made);
  } else if (value.is_object()) {
    for (const auto member : simdjson::dom::object(value)) {
      ++made.members;
      count(member.value, depth + 1, made);
    }
  }
}

void check_json(std::string_view body) {
  const tuft::JsonShape shape = tuft::json_shape(body);
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (parser.parse(body.data(), body.size()).get(root) != simdjson::SUCCESS) return;
  Made made;
  count(root, 0, made);
  tuft::fuzz::require(made.containers == shape.containers);
  tuft::fuzz::require(made.members == shape.members);
  tuft::fuzz::require(made.values <= shape.values);
  tuft::fuzz::require(made.depth == shape.depth);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body = tuft::fuzz::text_of(data, size);
  check_pass(body);
  check_json(body);
  return 0;
}
