// Tests of large bodies and answers: work threads, what a body may cost, and answers in pieces.
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "api/json/json_reader.h"
#include "api/tests/bodies.h"
#include "api/tests/test_client.h"

namespace tuft::api {
namespace {

const Headers kZstd = {{"Content-Type", "application/x-protobuf"}, {"Content-Encoding", "zstd"}};

std::string pass_of(size_t token_bytes) {
  tinker_public::ForwardBackwardRequest request;
  request.set_model_id("m");
  request.add_data()->add_model_input()->mutable_encoded_text()->set_tokens(std::string(token_bytes, '\1'));
  return request.SerializeAsString();
}

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

class Work : public ServerTest {
 protected:
  Work() { options.io_threads = 1; }
  ~Work() override { stop(); }
};

// Blocks what calls `hook`, every pass by default, until it is released.
class Gate {
 public:
  explicit Gate(FakeControl& control) : Gate(control, control.on_pass) {}
  Gate(FakeControl& control, std::function<void()>& hook) {
    control.synchronize();
    hook = [this] {
      reached_.set_value();
      open_.get_future().wait();
    };
  }
  void await_reached() { reached_.get_future().wait(); }
  void release() { open_.set_value(); }

 private:
  std::promise<void> reached_, open_;
};

TEST_F(Work, BodiesThatTakeLongHoldNobodyUp) {
  start();
  for (const bool compressed : {false, true}) {
    Gate gate(control);
    TestClient slow(server->port());
    const std::string body = pass_of(100'000);
    slow.send(request_text("POST", "/api/v1/forward_backward", compressed ? zstd(body) : body,
                           compressed ? kZstd : kProtobufHeaders));
    gate.await_reached();
    EXPECT_EQ(call("GET", "/api/v1/healthz").status, 200);
    gate.release();
    EXPECT_EQ(slow.read_reply().status, 200);
    EXPECT_EQ(control.last_pass.data(0).model_input(0).encoded_text().tokens().size(), 100'000U);
  }
}

// A session of 990 sampling sessions took 1.7 ms, and a list of 1,000 models 7.9 ms, of a thread that serves everybody.
TEST_F(Work, LongListsAndEndingsHoldNobodyUp) {
  struct Long {
    const char* method;
    const char* path;
    std::function<void()>& hook;
  };
  start();
  for (const Long& one : {Long{"GET", "/api/v1/sessions/s1", control.fake_catalog.on_session},
                          Long{"GET", "/oai/api/v1/models?limit=1000", control.fake_generation.on_models},
                          Long{"POST", "/api/v1/sessions/s-alice/finish", control.on_end}}) {
    Gate gate(control, one.hook);
    TestClient slow(server->port());
    slow.send(request_text(one.method, one.path, ""));
    gate.await_reached();
    EXPECT_EQ(call("GET", "/api/v1/healthz").status, 200) << one.path;
    gate.release();
    EXPECT_EQ(slow.read_reply().status, 200) << one.path;
  }
}

// A query of the telemetry store may take two seconds.
TEST_F(Work, QueriesOfTheTelemetryHoldNothingElseUp) {
  std::promise<void> answers;
  const std::shared_future<void> may_answer(answers.get_future());
  std::atomic<int> asked = 0;
  control.fake_observer.on_traces = [&] {
    ++asked;
    may_answer.wait();
  };
  start();
  std::vector<std::unique_ptr<TestClient>> slow;
  for (const char* key : {"tml-alice", "tml-alice", "tml-bob", "tml-bob"}) {
    slow.push_back(std::make_unique<TestClient>(server->port()));
    slow.back()->send(request_text("GET", "/api/v1/observe/traces", "", {{"X-API-Key", key}}));
  }
  while (asked < 3) std::this_thread::yield();  // all threads for queries
  EXPECT_EQ(call("POST", "/api/v1/create_session", "{}").status, 200);
  EXPECT_EQ(call("GET", "/api/v1/sessions").status, 200);
  EXPECT_EQ(call("POST", "/api/v1/forward_backward", pass_of(100'000), kProtobufHeaders).status, 200);
  answers.set_value();
  for (const auto& client : slow) EXPECT_EQ(client->read_reply().status, 200);
}

TEST_F(Work, AServerThatStopsWaitsForItsWorkThreads) {
  start();
  Gate gate(control);
  TestClient slow(server->port());
  slow.send(request_text("POST", "/api/v1/forward_backward", pass_of(100'000), kProtobufHeaders));
  gate.await_reached();
  server->stop(0);
  gate.release();
  stop();
  EXPECT_EQ(control.calls.size(), 1U);
}

// 32 million empty datums took 9.7 GB.
TEST_F(Work, PartsOfABodyAreLimitedBeforeTheyAreMade) {
  options.limits.request_parts_max = 1024;
  start();
  const std::string datums = repeated(std::string("\x1a\x00", 2), 2'000);
  const std::string rule = "1024 parts (limits.request_parts_max)";
  expect_refusal(post("forward_backward", datums, kProtobufHeaders), 413, rule);
  expect_refusal(post("forward_backward", zstd(datums), kZstd), 413, rule);
  const Headers json = {{"Content-Type", "application/json"}};
  const std::string objects =
      R"({"model_id":"m","forward_backward_input":{"loss_fn":"x","data":[)" + repeated("{},", 2'000) + "{}]}}";
  expect_refusal(post("forward_backward", objects, json), 413, rule);
  expect_refusal(post("asample", R"({"prompt":{"chunks":[)" + repeated("[],", 2'000) + "[]]}}", json), 413, rule);
  EXPECT_TRUE(control.calls.empty());
}

// libprotobuf would print a line on stderr.
TEST_F(Work, StringsThatAreNotUtf8AreRefused) {
  start();
  ::testing::internal::CaptureStderr();
  expect_refusal(post("forward_backward", std::string("\x0a\x02m\xff", 4), kProtobufHeaders), 400, "not UTF-8");
  EXPECT_EQ(::testing::internal::GetCapturedStderr().find("libprotobuf"), std::string::npos);
}

TEST_F(Work, TheFirstBadElementEndsTheReading) {
  start();
  const std::string many =
      R"({"model_id":"m","forward_backward_input":{"loss_fn":"x","data":[)" + repeated("{},", 50) + "{}]}}";
  const Reply reply = post("forward_backward", many, {{"Content-Type", "application/json"}});
  expect_refusal(reply, 422, "forward_backward_input.data[0].model_input: is required");
  EXPECT_EQ(reply.body.find("data[1]"), std::string::npos) << reply.body;
}

TEST_F(Work, DecodingIsChargedToItsUserBeforeItBegins) {
  control.fake_generation.memory_max = 200'000;
  start();
  const std::string rule = "limits.queued_bytes_per_user_max";
  for (const std::string& body : {pass_of(150'000), pass_of(1'000'000)}) {
    expect_refusal(post("forward_backward", zstd(body), kZstd), 429, rule);  // decompressed and decoded
  }
  expect_refusal(post("forward_backward", pass_of(250'000), kProtobufHeaders), 429, rule);
  const std::string numbers = R"({"prompt":{"chunks":[{"tokens":[)" + repeated("1,", 40'000) + "1]}]}}";
  expect_refusal(post("asample", numbers), 429, rule);
  EXPECT_EQ(post("forward_backward", pass_of(150'000), kProtobufHeaders).status, 200);
  EXPECT_EQ(control.calls.size(), 1U);
  EXPECT_EQ(control.fake_generation.memory->total(), 0);
}

TEST_F(Work, CompressedBodiesOfManySlicesArriveWhole) {
  start();
  std::string body = pass_of(20 << 20);
  ASSERT_EQ(post("forward_backward", zstd(body), kZstd).status, 200);
  EXPECT_EQ(control.last_pass.SerializeAsString(), body);
  std::string damaged = zstd(body);
  damaged.resize(damaged.size() - 1);
  expect_refusal(post("forward_backward", damaged, kZstd), 400, "zstd");
}

// They took 1.7 ms of an I/O thread each.
TEST_F(Work, JsonResultsOfSomeTokensAreWrittenByWorkThreads) {
  start();
  for (const size_t tokens : {1'000U, 5'000U}) {
    ASSERT_EQ(post("optim_step", R"({"model_id":"m","adam_params":{}})").status, 200);
    tinker_public::SampleResponse sample;
    sample.add_sequences()->set_tokens(std::string(tokens * sizeof(int32_t), '\0'));
    const std::string id = tokens == 1'000 ? "r1" : "r2";
    control.finish_with(id, control::OperationType::kSample, control::ProtobufResult{sample.SerializeAsString()});
    TestClient client(server->port());
    client.send(request_text("POST", "/api/v1/retrieve_future", R"({"request_id":")" + id + R"("})"));
    const bool is_streamed = client.read_until("\r\n\r\n").find("Transfer-Encoding: chunked") != std::string::npos;
    EXPECT_EQ(is_streamed, tokens == 5'000) << tokens;
  }
}

TEST_F(Work, LargeJsonResultsAreWrittenInPieces) {
  start();
  ASSERT_EQ(post("optim_step", R"({"model_id":"m","adam_params":{}})").status, 200);
  constexpr int kTokens = 400'000;
  tinker_public::SampleResponse sample;
  std::vector<int32_t> tokens(kTokens);
  for (int i = 0; i < kTokens; ++i) tokens[static_cast<size_t>(i)] = i;
  sample.add_sequences()->set_tokens(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int32_t));
  control.finish_with("r1", control::OperationType::kSample, control::ProtobufResult{sample.SerializeAsString()});
  TestClient client(server->port());
  client.send(request_text("POST", "/api/v1/retrieve_future", R"({"request_id":"r1"})"));
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_NE(head.find("Transfer-Encoding: chunked"), std::string::npos) << head;
  std::string text;
  int pieces = 0;
  while (true) {
    const size_t size = std::stoul(client.read_until("\r\n"), nullptr, 16);
    if (size == 0) break;
    ++pieces;
    EXPECT_LT(size, size_t{1} << 20);
    std::string piece = client.read_bytes(size + 2);
    text += piece.substr(0, size);
  }
  EXPECT_GT(pieces, 5);
  simdjson::dom::parser parser;
  simdjson::dom::array read;
  ASSERT_EQ(parser.parse(text)["sequences"].at(0)["tokens"].get_array().get(read), simdjson::SUCCESS);
  int64_t expected = 0;
  for (const simdjson::dom::element token : read) EXPECT_EQ(token.get_int64().value(), expected++);
  EXPECT_EQ(expected, kTokens);
}

}  // namespace
}  // namespace tuft::api
