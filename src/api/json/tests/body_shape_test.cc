#include "api/json/body_shape.h"

#include <string>
#include <utility>

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
  EXPECT_EQ(*count_pass_parts(pass().SerializeAsString(), kMost), 3 + 3 + 1 + 3 + 3 + 5);
  EXPECT_EQ(*count_pass_parts("", kMost), 0);
}

TEST(BodyShape, CountsWhatNewerClientsSend) {
  tinker_public::ForwardBackwardRequest request;
  (*request.mutable_loss_fn_config_v2())["mode"].set_text("x");
  tinker_public::SequenceSpan& span = *request.add_data()->add_model_input_spans()->mutable_prompt_tokens();
  span.set_sequence_id("r1-0");
  span.set_length(3);
  // the entry with key, value and text; the datum; its span, the prompt in it with sequence_id and length
  EXPECT_EQ(*count_pass_parts(request.SerializeAsString(), kMost), 4 + 1 + 4);
  for (std::string* text :
       {(*request.mutable_loss_fn_config_v2())["mode"].mutable_text(), span.mutable_sequence_id()}) {
    const std::string good = std::exchange(*text, "\xff");
    EXPECT_FALSE(count_pass_parts(request.SerializePartialAsString(), kMost).ok());
    *text = good;
  }
}

TEST(BodyShape, CountingEndsAtTheLimit) {
  std::string empty_datums;
  for (int i = 0; i < 5000; ++i) empty_datums += std::string("\x1a\x00", 2);
  EXPECT_EQ(*count_pass_parts(empty_datums, 1000), 1001);
  EXPECT_EQ(*count_pass_parts(empty_datums, 5000), 5000);
  // A shape of many sizes, and fields that no message knows.
  tinker_public::ForwardBackwardRequest wide;
  tinker_public::Tensor& tensor = (*wide.add_data()->mutable_loss_fn_inputs())["x"];
  for (int i = 0; i < 5000; ++i) tensor.add_shape(i);
  EXPECT_EQ(*count_pass_parts(wide.SerializeAsString(), 1000), 1001);
  std::string unknown;
  for (int i = 0; i < 5000; ++i) unknown += std::string("\x78\x00", 2);
  EXPECT_EQ(*count_pass_parts(unknown, 1000), 1001);
}

TEST(BodyShape, DamageAndBadTextAreRefused) {
  const std::string good = pass().SerializeAsString();
  for (const size_t cut : {size_t{1}, good.size() / 2, good.size() - 1}) {
    EXPECT_FALSE(count_pass_parts(good.substr(0, cut), kMost).ok()) << cut;
  }
  for (const char* text : {"\x0b", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x1a\x7f", "\x0a\x01\xff"}) {
    EXPECT_EQ(count_pass_parts(text, kMost).error().code, ErrorCode::kInvalidArgument) << text;
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
  int fields = 2;
  while (reader.next(field)) ++fields;
  EXPECT_EQ(fields, 5);
  EXPECT_FALSE(reader.damaged());
}

}  // namespace
}  // namespace tuft::api
