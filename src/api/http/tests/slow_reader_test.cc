// Tests of clients that do not read their answers.
#include <string>
#include <thread>
#include <vector>

#include "api/http/write_pace.h"
#include "api/tests/test_client.h"
#include "openai/service.h"
#include "openai/tests/byte_model.h"
#include "telemetry/testing/recorded_metrics.h"

namespace tuft::api {
namespace {

TEST(WritePace, AStopMayLastForTheStall) {
  WritePace pace(60, 1000);
  pace.begin();
  EXPECT_EQ(pace.left(), 60 * kSecond);
  pace.took(0, 20 * kSecond);
  EXPECT_EQ(pace.left(), 40 * kSecond);
  pace.took(0, 50 * kSecond);
  EXPECT_EQ(pace.left(), 0);
}

TEST(WritePace, BytesEarnTimeAtTheLowestRate) {
  WritePace pace(60, 1000);
  pace.begin();
  for (int i = 0; i < 1000; ++i) pace.took(1000, kSecond);
  EXPECT_EQ(pace.left(), 60 * kSecond);
  // A byte every second is too slow, although there is progress.
  for (int i = 0; i < 60; ++i) pace.took(1, kSecond);
  EXPECT_LT(pace.left(), kSecond);
  // A fast begin earns no longer stop.
  pace.begin();
  pace.took(1'000'000, 0);
  EXPECT_EQ(pace.left(), 60 * kSecond);
}

class SlowReaders : public ServerTest {
 protected:
  // A finished result of `bytes` bytes.
  void finish(const std::string& id, size_t bytes) {
    ASSERT_EQ(post("optim_step", R"({"model_id":"m","adam_params":{}})").status, 200);
    control.finish_with(id, control::OperationType::kForward, control::ProtobufResult{std::string(bytes, 'x')});
  }
  static std::string poll(const std::string& id, const std::string& key = "tml-alice") {
    return request_text("POST", "/api/v1/retrieve_future", R"({"request_id":")" + id + R"("})",
                        {{"Accept", "application/x-protobuf"}, {"X-API-Key", key}});
  }
};

TEST_F(SlowReaders, AnswersThatNobodyReadsAreLimited) {
  options.limits.sending_bytes_max = 64 << 20;  // a half for each user
  start();
  const telemetry::testing::RecordedMetrics metrics;
  finish("r1", 30 << 20);
  finish("r2", 1000);
  TestClient silent(server->port());
  silent.send(poll("r1"));
  EXPECT_NE(silent.read_until("\r\n\r\n").find(" 200 "), std::string::npos);
  EXPECT_EQ(metrics.gauge("tuft.http.sending.bytes"), 30 << 20);
  TestClient second(server->port());
  second.send(poll("r1"));
  const Reply refused = second.read_reply();
  expect_refusal(refused, 429, "limits.sending_bytes_max");
  EXPECT_EQ(metrics.counter("tuft.http.rejected", {{"reason", "user_sending_overloaded"}}), 1);
  second.send(poll("r2"));
  EXPECT_EQ(second.read_reply().body.size(), 1000U) << "short answers are not counted";
  // What was read is free again.
  EXPECT_EQ(silent.read_bytes(30 << 20).size(), size_t{30} << 20);
  silent.send(poll("r2"));
  EXPECT_EQ(silent.read_reply().status, 200);
  EXPECT_EQ(metrics.gauge("tuft.http.sending.bytes"), 0);
}

TEST_F(SlowReaders, AnswersOfOpenAiAreChargedUntilTheyAreRead) {
  const openai::ByteModel model;
  openai::FakeGeneration& generation = control.fake_generation;
  generation.model_config = model.config();
  generation.model_config.max_model_len = 100'000;
  start();
  const telemetry::testing::RecordedMetrics metrics;
  TestClient silent(server->port());
  silent.send(request_text("POST", "/oai/api/v1/completions",
                           R"({"model":"base/model","prompt":"hi","max_tokens":50000,"logprobs":20})"));
  generation.await_started(1);
  generation.give(0, 0, std::vector<int32_t>(20'000, 'a'));
  generation.finish(0, {false});
  EXPECT_NE(silent.read_until("\r\n\r\n").find("application/json"), std::string::npos);
  EXPECT_EQ(metrics.gauge("tuft.http.sending.bytes"), 2.0 * openai::kAnswerPieceBytes);
  EXPECT_GT(generation.memory->held_by("alice"), 20'000 * 20 * 8);
  EXPECT_LT(generation.memory->held_by("alice"), 50'000 * 20 * 8);
  EXPECT_GT(silent.read_until("0\r\n\r\n").size(), size_t{1} << 20);
  while (metrics.gauge("tuft.http.sending.bytes") > 0) std::this_thread::yield();
  stop();
  generation.forget_listeners();
  EXPECT_EQ(generation.memory->total(), 0);
}

TEST_F(SlowReaders, AConnectionThatIsNotReadIsClosed) {
  options.limits.answer_stall_seconds = 1;
  start();
  finish("r1", 64 << 20);
  TestClient silent(server->port());
  silent.send(poll("r1"));
  silent.read_until("\r\n\r\n");
  const telemetry::testing::RecordedMetrics metrics;
  while (metrics.gauge("tuft.http.sending.bytes") > 0) std::this_thread::yield();
  EXPECT_LT(silent.read_bytes(64 << 20).size(), size_t{64} << 20);
}

}  // namespace
}  // namespace tuft::api
