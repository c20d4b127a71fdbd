#include "worker/provenance.h"

#include <limits>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/conversion.h"

namespace tuft::worker {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

// A datum of three tokens: two of the prompt and one sampled, and targets that are shifted by one.
class Provenance : public ::testing::Test {
 protected:
  Provenance() {
    datum_.tokens = {5, 6, 7};
    datum_.loss_inputs["target_tokens"] = {{3}, std::vector<int64_t>{6, 7, 8}};
    set(*source_.add_model_input_spans()->mutable_prompt_tokens(), 0, 2);
    set(*source_.add_model_input_spans()->mutable_sampled_tokens(), 0, 1);
    set(*source_.add_loss_fn_input_spans()->mutable_prompt_tokens(), 1, 1);
    set(*source_.add_loss_fn_input_spans()->mutable_sampled_tokens(), 0, 2);
  }

  static void set(tinker_public::SequenceSpan& span, int64_t offset, int64_t length) {
    span.set_sequence_id("r6-0");
    span.set_offset(offset);
    span.set_length(length);
  }
  void expect_refused(const std::string& message) {
    const Status status = check_provenance(source_, 4, datum_);
    ASSERT_FALSE(status.ok()) << "wanted: " << message;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().message, HasSubstr(message));
  }

  tinker_public::Datum source_;
  engine::Datum datum_;
};

TEST_F(Provenance, SpansThatTileThenAccepted) {
  EXPECT_TRUE(check_provenance(source_, 0, datum_).ok());
  set(*source_.add_model_input_spans()->mutable_sampled_tokens(), 7, 0);
  EXPECT_TRUE(check_provenance(source_, 0, datum_).ok()) << "an empty span";
  source_.clear_model_input_spans();
  source_.clear_loss_fn_input_spans();
  EXPECT_TRUE(check_provenance(source_, 0, datum_).ok()) << "no spans";
}

TEST_F(Provenance, OneListThenRefused) {
  tinker_public::Datum both = source_;
  source_.clear_model_input_spans();
  expect_refused("datum 4, model_input_spans: is missing");
  source_ = both;
  source_.clear_loss_fn_input_spans();
  expect_refused("datum 4, loss_fn_input_spans: is missing");
}

TEST_F(Provenance, SpansThatDoNotTileThenRefused) {
  auto& input = *source_.mutable_model_input_spans(0)->mutable_prompt_tokens();
  for (const int64_t length : {int64_t{3}, kHuge}) {
    input.set_length(length);
    expect_refused("datum 4, model_input_spans: the spans cover more than the 3 tokens of model_input");
  }
  input.set_length(1);
  expect_refused("the spans cover only 2 of the 3 tokens of model_input");
  input.set_length(2);
  source_.mutable_loss_fn_input_spans(0)->mutable_prompt_tokens()->set_length(2);
  expect_refused("loss_fn_input_spans: the spans cover more than the 3 tokens of target_tokens");
}

TEST_F(Provenance, MalformedSpansThenRefused) {
  auto& first = *source_.mutable_model_input_spans(0);
  const tinker_public::ProvenanceSpan good = first;
  first.mutable_prompt_tokens()->set_offset(-1);
  expect_refused("span 0 has a negative offset or length");
  first = good;
  first.mutable_prompt_tokens()->set_length(-1);
  expect_refused("span 0 has a negative offset or length");
  first = good;
  first.mutable_prompt_tokens()->clear_sequence_id();
  expect_refused("span 0 names no sequence");
  first.Clear();
  expect_refused("span 0 is neither prompt_tokens nor sampled_tokens");
  first = good;
  datum_.loss_inputs["target_tokens"].shape = {3, 1};
  expect_refused("needs target_tokens of one dimension");
}

TEST_F(Provenance, TheSampledTargetsAreMasked) {
  ASSERT_TRUE(add_sampled_mask(source_, 0, datum_).ok());
  const engine::LossTensor& mask = datum_.loss_inputs.at("sampled_mask");
  EXPECT_EQ(mask.shape, (std::vector<int64_t>{3}));
  EXPECT_EQ(std::get<std::vector<float>>(mask.values), (std::vector<float>{0, 1, 1}));
  const Status again = add_sampled_mask(source_, 0, datum_);
  ASSERT_FALSE(again.ok());
  EXPECT_THAT(again.error().message, HasSubstr("leave the input sampled_mask out"));
  datum_.loss_inputs.erase("sampled_mask");
  source_.clear_loss_fn_input_spans();
  EXPECT_THAT(add_sampled_mask(source_, 0, datum_).error().message, HasSubstr("stable_reinforce needs it"));
}

TEST_F(Provenance, OnlyStableReinforceGetsTheMask) {
  tinker_public::ForwardBackwardRequest request;
  tinker_public::Datum& datum = *request.add_data() = source_;
  const std::vector<int32_t> tokens = {5, 6, 7};
  datum.add_model_input()->mutable_encoded_text()->set_tokens(tokens.data(), tokens.size() * sizeof(int32_t));
  tinker_public::Tensor& targets = (*datum.mutable_loss_fn_inputs())["target_tokens"];
  targets.set_dtype(tinker_public::DTYPE_INT32);
  targets.set_dense(tokens.data(), tokens.size() * sizeof(int32_t));
  for (const bool is_stable : {true, false}) {
    request.set_loss_fn(is_stable ? "stable_reinforce" : "ppo");
    const auto converted = to_train_request(request, engine::AdapterId("a"), "tiny");
    ASSERT_TRUE(converted.ok()) << converted.error().message;
    EXPECT_EQ(converted->data[0].loss_inputs.count("sampled_mask"), is_stable ? 1U : 0U);
  }
}

}  // namespace
}  // namespace tuft::worker
