#include "api/json/body_shape.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include "api/json/wire_reader.h"
#include "tinker/public.pb.h"

namespace tuft::api {
namespace {

constexpr int64_t kMost = 1000;

tinker_public::ForwardBackwardRequest pass() {
  tinker_public::ForwardBackwardRequest request;
  request.set_model_id("m");
  request.set_seq_id(1);
  request.set_loss_fn("cross_entropy");
  (*request.mutable_loss_fn_config())["beta"] = 0.5;
  tinker_public::Datum& datum = *request.add_data();
  datum.add_model_input()->mutable_encoded_text()->set_tokens("abcd");
  tinker_public::Tensor& tensor = (*datum.mutable_loss_fn_inputs())["weights"];
  tensor.set_dense("abcdefgh");
  tensor.set_dtype(tinker_public::DTYPE_FLOAT32);
  tensor.add_shape(1);
  tensor.add_shape(2);
  return request;
}

TEST(BodyShape, CountsEveryFieldAndTheElementsOfShapes) {
  // model_id, seq_id, loss_fn; the entry of the configuration with key and value; the datum; its chunk, text and
  // tokens; the entry of its tensor with key and value; dense, dtype, shape with two elements
  EXPECT_EQ(scan_pass(pass().SerializeAsString(), kMost)->parts, 3 + 3 + 1 + 3 + 3 + 5);
  EXPECT_EQ(scan_pass("", kMost)->parts, 0);
}

TEST(BodyShape, CountsWhatNewerClientsSend) {
  tinker_public::ForwardBackwardRequest request;
  (*request.mutable_loss_fn_config_v2())["mode"].set_text("x");
  tinker_public::SequenceSpan& span = *request.add_data()->add_model_input_spans()->mutable_prompt_tokens();
  span.set_sequence_id("r1-0");
  span.set_length(3);
  // the entry with key, value and text; the datum; its span, the prompt in it with sequence_id and length
  EXPECT_EQ(scan_pass(request.SerializeAsString(), kMost)->parts, 4 + 1 + 4);
  for (std::string* text :
       {(*request.mutable_loss_fn_config_v2())["mode"].mutable_text(), span.mutable_sequence_id()}) {
    const std::string good = std::exchange(*text, "\xff");
    EXPECT_FALSE(scan_pass(request.SerializePartialAsString(), kMost).ok());
    *text = good;
  }
}

// ---- unknown fields

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string with_bytes(int number, const std::string& bytes) {
  return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(bytes.size()) + bytes;
}

// An empty value of a field, as libprotobuf would write it.
std::string value_of(const FieldDescriptor& field) {
  if (field.type() == FieldDescriptor::TYPE_DOUBLE) {
    return varint(static_cast<uint64_t>(field.number()) << 3 | 1) + std::string(8, '\0');
  }
  const bool has_length = field.type() == FieldDescriptor::TYPE_MESSAGE ||
                          field.type() == FieldDescriptor::TYPE_STRING || field.type() == FieldDescriptor::TYPE_BYTES;
  if (has_length) return with_bytes(field.number(), "");
  return varint(static_cast<uint64_t>(field.number()) << 3) + varint(0);
}

// Checks each field of a message, and one more, inside the message that `wrap` puts around it.
void check_message(const Descriptor& descriptor, const std::function<std::string(std::string)>& wrap,
                   std::set<std::string>& seen) {
  if (!seen.insert(descriptor.full_name()).second) return;
  int highest = 0;
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    highest = std::max(highest, field.number());
    const auto known = scan_pass(wrap(value_of(field)), kMost);
    EXPECT_TRUE(known.ok() && known->known.ok()) << field.full_name();
    // The same number in another form.
    const auto fixed32 = scan_pass(wrap(varint(static_cast<uint64_t>(field.number()) << 3 | 5) + "abcd"), kMost);
    EXPECT_FALSE(fixed32->known.ok()) << field.full_name();
    if (field.message_type() == nullptr) continue;
    check_message(
        *field.message_type(), [&](const std::string& inner) { return wrap(with_bytes(field.number(), inner)); }, seen);
  }
  const auto next = scan_pass(wrap(with_bytes(highest + 1, "x")), kMost);
  ASSERT_TRUE(next.ok() && !next->known.ok()) << descriptor.full_name();
  const std::string& message = next->known.error().message;
  EXPECT_EQ(next->known.error().reason, "unknown_field");
  EXPECT_EQ(message.find("field " + std::to_string(highest + 1) + " of a "), 0U) << message;
  if (descriptor.options().map_entry()) return;  // it is named by its field
  EXPECT_NE(message.find(" of a " + descriptor.name() + ": "), std::string::npos) << message;
}

TEST(BodyShape, KnowsTheFieldsOfTheSchemaAndNoOthers) {
  std::set<std::string> seen;
  check_message(
      *tinker_public::ForwardBackwardRequest::descriptor(), [](std::string inner) { return inner; }, seen);
  EXPECT_EQ(seen.size(), 14U);
  EXPECT_TRUE(scan_pass(pass().SerializeAsString(), kMost)->known.ok());
}

TEST(BodyShape, CountingEndsAtTheLimit) {
  std::string empty_datums;
  for (int i = 0; i < 5000; ++i) empty_datums += std::string("\x1a\x00", 2);
  EXPECT_EQ(scan_pass(empty_datums, 1000)->parts, 1001);
  EXPECT_EQ(scan_pass(empty_datums, 5000)->parts, 5000);
  // A shape of many sizes, and fields that no message knows.
  tinker_public::ForwardBackwardRequest wide;
  tinker_public::Tensor& tensor = (*wide.add_data()->mutable_loss_fn_inputs())["x"];
  for (int i = 0; i < 5000; ++i) tensor.add_shape(i);
  EXPECT_EQ(scan_pass(wide.SerializeAsString(), 1000)->parts, 1001);
  std::string unknown;
  for (int i = 0; i < 5000; ++i) unknown += std::string("\x78\x00", 2);
  EXPECT_EQ(scan_pass(unknown, 1000)->parts, 1001);
}

// The data before them were read again for each of them, so that 64 KiB became 512 MiB to read.
TEST(BodyShape, SizesThatAreNotPackedAreCountedOnce) {
  const std::string data = with_bytes(1, std::string(100, 'x'));
  const std::string sizes = "\x20\x01\x20\x02";
  const std::string entry = with_bytes(1, "x") + with_bytes(2, data + sizes);
  // the datum; the entry of its tensor with key and value; dense, and two sizes
  EXPECT_EQ(scan_pass(with_bytes(3, with_bytes(2, entry)), kMost)->parts, 1 + 3 + 3);
}

TEST(BodyShape, DamageAndBadTextAreRefused) {
  const std::string good = pass().SerializeAsString();
  for (const size_t cut : {size_t{1}, good.size() / 2, good.size() - 1}) {
    EXPECT_FALSE(scan_pass(good.substr(0, cut), kMost).ok()) << cut;
  }
  for (const char* text : {"\x0b", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x1a\x7f", "\x0a\x01\xff"}) {
    EXPECT_EQ(scan_pass(text, kMost).error().code, ErrorCode::kInvalidArgument) << text;
  }
}

TEST(BodyShape, ReaderReturnsWhatIsOnTheWire) {
  const std::string message = pass().SerializeAsString();
  WireReader reader(message);
  WireField field;
  ASSERT_TRUE(reader.next(field));
  EXPECT_EQ(field.number, 1U);
  EXPECT_EQ(field.bytes, "m");
  ASSERT_TRUE(reader.next(field));
  EXPECT_EQ(field.number, 2U);
  EXPECT_EQ(field.value, 1U);
  EXPECT_TRUE(field.bytes.empty());
  int fields = 2;
  while (reader.next(field)) ++fields;
  EXPECT_EQ(fields, 5);
  EXPECT_FALSE(reader.damaged());
}

}  // namespace
}  // namespace tuft::api
