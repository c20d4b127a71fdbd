// Tests of the records of samples: their way into passes of stable_reinforce, their limits and their end.
#include <cstdint>
#include <cstring>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>

#include "control/sampling/sample_records.h"
#include "control/tests/plane.h"
#include "telemetry/tests/collector_fixture.h"

namespace tuft::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::string bytes_of(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

// The prompts have three tokens, and so have the records (fake_actor.h).
class RecordedPlane : public PlaneTest {
 protected:
  void boot_all() {
    std::tie(session_, run_) = boot_with_session_and_run();
    sampler_ = sampler_of(session_, alice);
  }
  SamplerId sampler_of(const SessionId& session, const UserId& user) {
    const auto sampler = try_sampler(session, user, 0, model);
    EXPECT_TRUE(sampler.ok()) << sampler.error().message;
    return sampler.ok() ? *sampler : SamplerId();
  }
  // Returns the id of the first sequence of a sample that was answered.
  std::string sampled(const SamplerId& sampler, const UserId& user, bool record = true, int count = 1) {
    Sample request = sample_request(sampler);
    request.prompt_tokens = {5, 6, 7};
    request.num_samples = count;
    request.record_stability_info = record;
    const auto submitted = plane().sample(user, request, no_trace);
    EXPECT_TRUE(submitted.ok()) << submitted.error().message;
    if (!submitted.ok()) return {};
    value<ProtobufResult>(user, submitted->request);
    return submitted->request.str() + "-0";
  }
  std::string sampled() { return sampled(sampler_, alice); }

  static void span(tinker_public::SequenceSpan* part, const std::string& sequence, int64_t offset, int64_t length) {
    part->set_sequence_id(sequence);
    part->set_offset(offset);
    part->set_length(length);
  }
  static void tensor(tinker_public::Datum& datum, const char* name, std::string bytes, tinker_public::DType dtype) {
    tinker_public::Tensor& tensor = (*datum.mutable_loss_fn_inputs())[name];
    tensor.set_dense(std::move(bytes));
    tensor.set_dtype(dtype);
  }
  // One turn: the prompt 5 6 7 and the three sampled tokens 40 41 42.
  static tinker_public::Datum turn(const std::string& sequence) {
    tinker_public::Datum datum;
    tensor(datum, "target_tokens", bytes_of<int64_t>({6, 7, 40, 41, 42}), tinker_public::DTYPE_INT64);
    tensor(datum, "logprobs", bytes_of<float>({-9, -9, -9, -9, -9}), tinker_public::DTYPE_FLOAT32);
    span(datum.add_model_input_spans()->mutable_prompt_tokens(), sequence, 0, 3);
    span(datum.add_model_input_spans()->mutable_sampled_tokens(), sequence, 0, 2);
    span(datum.add_loss_fn_input_spans()->mutable_prompt_tokens(), sequence, 1, 2);
    span(datum.add_loss_fn_input_spans()->mutable_sampled_tokens(), sequence, 0, 3);
    return datum;
  }
  RequestId pass(const tinker_public::Datum& datum, const UserId& user, const RunId& run) {
    tinker_public::ForwardBackwardRequest request;
    request.set_model_id(run.str());
    request.set_seq_id(++seq_[run]);
    request.set_loss_fn("stable_reinforce");
    *request.add_data() = datum;
    const auto submitted = plane().forward_backward(user, std::move(request), no_trace);
    EXPECT_TRUE(submitted.ok()) << submitted.error().message;
    return submitted.ok() ? submitted->request : RequestId();
  }
  Error refusal(const tinker_public::Datum& datum) { return failure(alice, pass(datum, alice, run_)); }
  // Returns the log-probabilities of the first datum that the worker got.
  std::vector<float> trained(const tinker_public::Datum& datum) {
    value<ProtobufResult>(alice, pass(datum, alice, run_));
    const std::string bytes = worker().last_pass().request().data(0).loss_fn_inputs().at("logprobs").dense();
    std::vector<float> numbers(bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }
  void expect_gone(const std::string& sequence) {
    const Error error = refusal(turn(sequence));
    EXPECT_EQ(error.reason, "sample_record_not_found");
    EXPECT_EQ(error.code, ErrorCode::kNotFound);
    EXPECT_THAT(error.message, HasSubstr("datum 0, loss_fn_input_spans: the sequence '" + sequence + "' is not"));
  }

  double gauge(const std::string& name) {
    EXPECT_TRUE(collector_.flush());
    const auto metric = collector_.receiver.metric(name);
    return metric.has_value() && !metric->points.empty() ? metric->points.front().value : -1;
  }

  telemetry::WithCollector collector_;
  SessionId session_;
  RunId run_;
  SamplerId sampler_;
  std::map<RunId, int32_t> seq_;
};

TEST_F(RecordedPlane, WhatWasRecordedReplacesTheLogprobsOfTheRequest) {
  boot_all();
  const std::string sequence = sampled();
  EXPECT_THAT(trained(turn(sequence)), ElementsAre(0, 0, -0.5F, -1.5F, -2.5F));
  tinker_public::Datum bare = turn(sequence);
  bare.mutable_loss_fn_inputs()->erase("logprobs");
  EXPECT_THAT(trained(bare), ElementsAre(0, 0, -0.5F, -1.5F, -2.5F));
}

TEST_F(RecordedPlane, ATrajectoryOfSeveralTurnsNamesSeveralSequences) {
  boot_all();
  const std::string first = sampled();
  const std::string second = sampled();
  tinker_public::Datum datum;
  tensor(datum, "target_tokens", bytes_of<int32_t>({40, 41, 5, 6, 41, 42}), tinker_public::DTYPE_INT32);
  span(datum.add_model_input_spans()->mutable_prompt_tokens(), second, 0, 3);
  span(datum.add_loss_fn_input_spans()->mutable_sampled_tokens(), first, 0, 2);
  span(datum.add_loss_fn_input_spans()->mutable_prompt_tokens(), second, 0, 2);
  span(datum.add_loss_fn_input_spans()->mutable_sampled_tokens(), second, 1, 2);
  EXPECT_THAT(trained(datum), ElementsAre(-0.5F, -1.5F, 0, 0, -1.5F, -2.5F));
}

TEST_F(RecordedPlane, EverySequenceOfASampleHasARecord) {
  boot_all();
  std::string last = sampled(sampler_, alice, true, 3);
  last.back() = '2';
  EXPECT_EQ(trained(turn(last)).size(), 5U);
  last.back() = '3';
  expect_gone(last);
}

TEST_F(RecordedPlane, SpansThatDoNotFitTheRecordAreRefused) {
  boot_all();
  const std::string sequence = sampled();
  const auto refused = [&](const std::string& message, auto&& change) {
    tinker_public::Datum datum = turn(sequence);
    change(datum);
    const Error error = refusal(datum);
    EXPECT_EQ(error.reason, "bad_provenance") << error.message;
    EXPECT_THAT(error.message, HasSubstr(message));
  };
  refused("loss_fn_input_spans: stable_reinforce needs the spans", [](auto& datum) {
    datum.clear_model_input_spans();
    datum.clear_loss_fn_input_spans();
  });
  const auto loss_span = [](auto& datum, int64_t offset, int64_t length) {
    auto& part = *datum.mutable_loss_fn_input_spans(1)->mutable_sampled_tokens();
    span(&part, part.sequence_id(), offset, length);
  };
  refused("within the 3 sampled tokens", [&](auto& datum) { loss_span(datum, 1, 3); });
  refused("within the 3 sampled tokens", [&](auto& datum) { loss_span(datum, -1, 3); });
  refused("within the 3 sampled tokens", [&](auto& datum) { loss_span(datum, 0, -3); });
  refused("within the 3 sampled tokens", [&](auto& datum) { loss_span(datum, INT64_MAX, INT64_MAX); });
  refused("do not cover the 5 tokens", [&](auto& datum) { loss_span(datum, 0, 2); });
  refused("do not cover the 5 tokens",
          [&](auto& datum) { *datum.add_loss_fn_input_spans() = datum.loss_fn_input_spans(1); });
  refused("neither prompt_tokens nor sampled_tokens", [](auto& datum) { datum.add_loss_fn_input_spans(); });
  refused("model_input_spans: a span does not lie within the 3 prompt tokens",
          [](auto& datum) { datum.mutable_model_input_spans(0)->mutable_prompt_tokens()->set_length(4); });
  refused("at position 3 another token", [](auto& datum) {
    tensor(datum, "target_tokens", bytes_of<int64_t>({6, 7, 40, 99, 42}), tinker_public::DTYPE_INT64);
  });
  refused("dtype int64 or int32", [](auto& datum) { datum.mutable_loss_fn_inputs()->erase("target_tokens"); });
  EXPECT_EQ(trained(turn(sequence)).size(), 5U) << "a refused pass has used its number up";
}

TEST_F(RecordedPlane, ARecordBelongsToItsUserAndSession) {
  boot_all();
  const std::string sequence = sampled();
  const RunId other = create_model(session(alice), alice);
  EXPECT_EQ(failure(alice, pass(turn(sequence), alice, other)).reason, "sample_record_not_found");
  const SessionId bobs = session(bob);
  const RunId run_of_bob = create_model(bobs, bob);
  EXPECT_EQ(failure(bob, pass(turn(sequence), bob, run_of_bob)).reason, "sample_record_not_found");
  expect_gone(sampled(sampler_, alice, false));
  const Error unreadable = refusal(turn("a\nb"));
  EXPECT_THAT(unreadable.message, HasSubstr("the sequence with an unreadable id is not recorded"));
}

TEST_F(RecordedPlane, ARecordLivesForADayAfterItsLastUse) {
  config().limits.session_idle_seconds = 30 * 24 * 3600;
  boot_all();
  const std::string used = sampled();
  const std::string unused = sampled();
  advance(SampleRecords::kLife - kSecond);
  EXPECT_EQ(trained(turn(used)).size(), 5U);
  advance(kSecond);
  expect_gone(unused);
  advance(SampleRecords::kLife - 2 * kSecond);
  EXPECT_EQ(trained(turn(used)).size(), 5U);
  advance(SampleRecords::kLife);
  expect_gone(used);
}

TEST_F(RecordedPlane, RecordsEndWithTheirSession) {
  boot_all();
  sampled();
  EXPECT_EQ(gauge("tuft.sampling.records.active"), 1);
  EXPECT_EQ(gauge("tuft.sampling.records.bytes"), SampleRecords::kEntryBytes + 3 * 8);
  ASSERT_TRUE(plane().end_session(alice, session_, {}).ok());
  advance(kSecond);
  EXPECT_EQ(gauge("tuft.sampling.records.active"), 0);
  EXPECT_EQ(gauge("tuft.sampling.records.bytes"), 0);
}

TEST_F(RecordedPlane, OverTheLimitOfTheirUserTheLongestUnusedRecordsAreDropped) {
  const int64_t each = SampleRecords::kEntryBytes + 3 * 8;
  config().limits.sample_record_bytes_per_user_max = 3 * each;
  boot_all();
  const std::string first = sampled();
  const std::string second = sampled();
  const std::string third = sampled();
  EXPECT_EQ(trained(turn(first)).size(), 5U);
  const std::string fourth = sampled();
  expect_gone(second);
  for (const std::string& kept : {first, third, fourth}) EXPECT_EQ(trained(turn(kept)).size(), 5U);
}

TEST_F(RecordedPlane, OverTheLimitOfAllTheUserWithMostLosesRecords) {
  const int64_t each = SampleRecords::kEntryBytes + 3 * 8;
  config().limits.sample_record_bytes_max = 3 * each;
  boot_all();
  const std::string first = sampled();
  const std::string second = sampled();
  const SessionId bobs = session(bob);
  const SamplerId sampler_of_bob = sampler_of(bobs, bob);
  const RunId run_of_bob = create_model(bobs, bob);
  const std::string his = sampled(sampler_of_bob, bob);
  const std::string third = sampled();
  expect_gone(first);
  EXPECT_EQ(trained(turn(second)).size(), 5U);
  EXPECT_EQ(trained(turn(third)).size(), 5U);
  value<ProtobufResult>(bob, pass(turn(his), bob, run_of_bob));
}

TEST_F(RecordedPlane, ARestartLosesRecordsWithAClearError) {
  keep_state();
  boot_all();
  const std::string sequence = sampled();
  ASSERT_TRUE(durable().ok());
  crash_and_boot();
  expect_gone(sequence);
}

}  // namespace
}  // namespace tuft::control
