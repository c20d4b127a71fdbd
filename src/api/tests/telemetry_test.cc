// Tests of the telemetry of requests and of the access to the metrics.
#include "telemetry/telemetry.h"

#include <algorithm>
#include <future>

#include "api/routing/http_telemetry.h"
#include "api/tests/test_client.h"
#include "metrics/futures.h"
#include "openai/tests/byte_model.h"
#include "telemetry/record/share_keys.h"
#include "telemetry/tests/collector_fixture.h"
#include "telemetry/trace.h"

namespace tuft::api {
namespace {

using telemetry::testing::ReceivedSpan;
using telemetry::testing::text_of;

// A request that nobody answers. The promise is kept once it has begun.
std::promise<void>* unanswered_began = nullptr;

Result<Answer> handle_unanswered(Exchange&) {
  AwaitResponse never;
  never.start = [](const auto&) { unanswered_began->set_value(); };
  return Answer(std::move(never));
}

constexpr Route kUnansweredRoutes[] = {
    {.method = Method::kGet, .pattern = "/api/v1/a_request_that_nobody_answers", .handler = handle_unanswered}};

class HttpTelemetry : public ServerTest {
 protected:
  // The span of a request ends after its answer has been sent.
  std::optional<ReceivedSpan> span_of(const std::string& name) {
    EXPECT_TRUE(collector.receiver.wait_until([&] { return collector.span(name).has_value(); })) << name;
    return collector.span(name);
  }
  size_t count_spans(const std::string& name) {
    const auto spans = collector.receiver.spans();
    return static_cast<size_t>(
        std::count_if(spans.begin(), spans.end(), [&](const auto& span) { return span.name == name; }));
  }
  double histogram_count(const std::string& name, const std::map<std::string, std::string>& labels) {
    EXPECT_TRUE(collector.flush());
    const auto metric = collector.receiver.metric(name);
    const auto* point = metric.has_value() ? metric->point(labels) : nullptr;
    return point == nullptr ? 0 : static_cast<double>(point->count);
  }
  // Returns how many POST requests of a route have been answered with `status`, by any test of the process.
  double answered(const char* route, const std::string& status) {
    std::map<std::string, std::string> labels = {{"http.request.method", "POST"},
                                                 {"http.route", route},
                                                 {"http.response.status_code", status},
                                                 {"url.scheme", "http"}};
    if (status.starts_with('5')) labels["error.type"] = status;
    return histogram_count("http.server.request.duration", labels);
  }

  telemetry::WithCollector collector;
};

TEST_F(HttpTelemetry, SpanHasTheAttributesOfTheConventions) {
  start();
  const std::string body = R"({"model_id":"s1:train:0","adam_params":{}})";
  const Reply reply =
      post("optim_step", body,
           {{"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, {"User-Agent", "test/1"}});
  const auto span = span_of("POST /api/v1/optim_step");
  ASSERT_TRUE(span.has_value());
  EXPECT_EQ(span->kind, 2);
  EXPECT_EQ(span->trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(span->parent_span_id, "b7ad6b7169203331");
  const std::map<std::string, std::string> expected = {
      {"http.request.method", "POST"},
      {"http.route", "/api/v1/optim_step"},
      {"http.response.status_code", "200"},
      {"url.path", "/api/v1/optim_step"},
      {"url.scheme", "http"},
      {"server.address", "127.0.0.1"},
      {"server.port", std::to_string(server->port())},
      {"client.address", "127.0.0.1"},
      {"user_agent.original", "test/1"},
      {"network.protocol.version", "1.1"},
      {"http.request.body.size", std::to_string(body.size())},
      {"http.response.body.size", std::to_string(reply.body.size())},
      {"tuft.request_id", "r1"},
      {"tuft.training_run_id", "s1:train:0"},
      {"tuft.session_id", "s1"},
  };
  for (const auto& [key, value] : expected) EXPECT_EQ(text_of(span->attributes, key), value) << key;
  EXPECT_FALSE(text_of(span->attributes, "client.port").empty());
  EXPECT_FALSE(span->error);
  EXPECT_EQ(reply.headers.at("traceresponse"), "00-" + span->trace_id + "-" + span->span_id + "-01");
}

TEST_F(HttpTelemetry, ServerFailureIsAnErrorAndARefusalIsNot) {
  start();
  const double failures_before = answered("/api/v1/optim_step", "503");
  control.next_failure = unavailable("a worker is away");
  EXPECT_EQ(post("optim_step", R"({"model_id":"m","adam_params":{}})").status, 503);
  const auto failed = span_of("POST /api/v1/optim_step");
  ASSERT_TRUE(failed.has_value());
  EXPECT_TRUE(failed->error);
  EXPECT_EQ(text_of(failed->attributes, "error.type"), "503");
  EXPECT_EQ(post("create_model", "{").status, 422);
  const auto refused = span_of("POST /api/v1/create_model");
  ASSERT_TRUE(refused.has_value());
  EXPECT_FALSE(refused->error);
  EXPECT_EQ(answered("/api/v1/optim_step", "503"), failures_before + 1);
  EXPECT_GE(collector.sum("tuft.http.parse_errors", {{"reason", "json"}}), 1);
}

TEST_F(HttpTelemetry, DeliveredPollIsASpanThatLinksToItsOperation) {
  options.long_poll = 50 * kMillisecond;
  start();
  ASSERT_EQ(post("optim_step", R"({"model_id":"m","adam_params":{}})").status, 200);
  EXPECT_EQ(post("retrieve_future", R"({"request_id":"r1"})").status, 408);
  control::FutureSnapshot snapshot;
  snapshot.state = control::FutureSnapshot::State::kReady;
  snapshot.operation = control::OperationType::kOptimStep;
  snapshot.value = std::make_shared<const control::FutureValue>(control::OptimStepResult{});
  snapshot.span = {1, 2, 3, 1};
  auto keys = std::make_shared<control::OperationKeys>();
  keys->request = control::RequestId("r1");
  keys->operation = control::OperationType::kOptimStep;
  keys->session = control::SessionId("s9");
  keys->base_model = "base/model";
  keys->lora_rank = 8;
  snapshot.keys = keys;
  control.finish("r1", snapshot);
  EXPECT_EQ(post("retrieve_future", R"({"request_id":"r1"})", {{"X-Tinker-Request-Iteration", "1"}}).status, 200);
  const auto span = span_of("POST /api/v1/retrieve_future");
  ASSERT_TRUE(span.has_value());
  ASSERT_EQ(span->links.size(), 1U);
  EXPECT_EQ(span->links[0].trace_id, "00000000000000010000000000000002");
  EXPECT_EQ(span->links[0].span_id, "0000000000000003");
  EXPECT_EQ(text_of(span->attributes, "tuft.poll.iteration"), "1");
  EXPECT_EQ(text_of(span->attributes, "tuft.session_id"), "s9");
  EXPECT_EQ(text_of(span->attributes, "tuft.operation_type"), "optim_step");
  EXPECT_EQ(text_of(span->attributes, "tuft.lora_rank"), "8");
  EXPECT_EQ(count_spans("POST /api/v1/retrieve_future"), 1U);
  ASSERT_TRUE(collector.flush());
  EXPECT_GE(collector.sum("tuft.futures.try_again", {{"queue_state", "active"}}), 1);
}

TEST_F(HttpTelemetry, FirstPollReportsTheDurationOfTheSubmission) {
  start();
  ASSERT_EQ(post("optim_step", R"({"model_id":"m","adam_params":{}})").status, 200);
  control.finish_with("r1", control::OperationType::kOptimStep, control::OptimStepResult{});
  const std::map<std::string, std::string> labels = {{"operation_type", "optim_step"}};
  const double before = histogram_count("tuft.client.roundtrip.duration", labels);
  const std::string poll = R"({"request_id":"r1"})";
  const char* const seconds_header = "X-Tinker-Create-Promise-Roundtrip-Time";
  post("retrieve_future", poll, {{"X-Tinker-Request-Iteration", "0"}, {seconds_header, "0.25"}});
  post("retrieve_future", poll, {{"X-Tinker-Request-Iteration", "1"}, {seconds_header, "0.25"}});
  for (const char* nonsense : {"nan", "-1", "inf", "1e9", "a"}) {
    post("retrieve_future", poll, {{"X-Tinker-Request-Iteration", "0"}, {seconds_header, nonsense}});
  }
  EXPECT_EQ(histogram_count("tuft.client.roundtrip.duration", labels), before + 1);
}

TEST_F(HttpTelemetry, HealthTelemetryAndMetricsHaveNoSpan) {
  start();
  EXPECT_EQ(call("GET", "/api/v1/healthz").status, 200);
  EXPECT_EQ(call("GET", "/metrics").status, 200);
  EXPECT_EQ(post("telemetry", "{}").status, 200);
  EXPECT_EQ(
      post("create_session", "{}", {{"X-Stainless-Package-Version", "0.25.0"}, {"X-Stainless-OS", "<Linux>"}}).status,
      200);
  const auto session = span_of("POST /api/v1/create_session");
  ASSERT_TRUE(session.has_value());
  EXPECT_EQ(text_of(session->attributes, "tuft.client.sdk_version"), "0.25.0");
  EXPECT_EQ(text_of(session->attributes, "tuft.client.os"), "");
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.receiver.spans().size(), 1U);
}

TEST_F(HttpTelemetry, RequestsNameTheMethodAndVersionOfTheSdk) {
  start();
  const Headers headers = {{"X-SDK-Version", "0.38.0"}, {"X-SDK-Method", "TrainingClient.optim_step"}};
  ASSERT_EQ(post("optim_step", R"({"model_id":"m","adam_params":{}})", headers).status, 200);
  const auto span = span_of("POST /api/v1/optim_step");
  ASSERT_TRUE(span.has_value());
  EXPECT_EQ(text_of(span->attributes, "tuft.client.method"), "TrainingClient.optim_step");
  EXPECT_EQ(text_of(span->attributes, "tuft.client.sdk_version"), "0.38.0");
  for (const std::string& wrong : {std::string("<script>"), std::string(65, 'x')}) {
    ASSERT_EQ(post("get_info", R"({"model_id":"m"})", {{"X-SDK-Method", wrong}}).status, 200);
  }
  const auto other = span_of("POST /api/v1/get_info");
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(text_of(other->attributes, "tuft.client.method"), "");
}

TEST_F(HttpTelemetry, RefusedKeysAreCountedAndLoggedRarely) {
  start();
  for (int i = 0; i < 20; ++i) post("get_info", "{}", {{"X-API-Key", "tml-not-a-key"}});
  ASSERT_TRUE(collector.flush());
  EXPECT_GE(collector.sum("tuft.auth.failures", {{"reason", "unknown"}}), 20);
  const auto logs = collector.receiver.logs();
  EXPECT_LE(std::count_if(logs.begin(), logs.end(), [](const auto& log) { return log.event_name == "auth.failed"; }),
            3);
  EXPECT_EQ(collector.receiver.raw_bytes().find("tml-not-a-key"), std::string::npos);
}

// One user's requests could push the keys of others' operations out otherwise.
TEST_F(HttpTelemetry, ARequestWithoutAnOperationTakesNoPlaceAmongTheSharedKeys) {
  start();
  const uint32_t before = telemetry::share({}, {{"tuft.session_id", "any"}}).keys;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(post("get_info", R"({"model_id":"s1:train:0"})").status, 200);
  EXPECT_EQ(telemetry::share({}, {{"tuft.session_id", "any"}}).keys, before + 1);
  ASSERT_TRUE(collector.flush());
  const auto logs = collector.receiver.logs();
  const auto access =
      std::find_if(logs.begin(), logs.end(), [](const auto& log) { return log.event_name == "http.access"; });
  ASSERT_NE(access, logs.end());
  EXPECT_EQ(text_of(access->attributes, "tuft.training_run_id"), "s1:train:0");
}

TEST_F(HttpTelemetry, TheSpanOfALongCompletionHasItsShareKeys) {
  const openai::ByteModel model;
  openai::FakeGeneration& generation = control.fake_generation;
  generation.model_config = model.config();
  start();
  TestClient client(server->port());
  client.send(request_text("POST", "/oai/api/v1/completions",
                           R"({"model":"base/model","prompt":"hi","max_tokens":1,"stream":true})"));
  generation.await_started(1);
  for (size_t i = 0; i <= telemetry::internal::kShareKeySetsMax; ++i) telemetry::share({}, {{"other", "key"}});
  generation.give(0, 0, {'a'});
  generation.finish(0, {false});
  EXPECT_NE(client.read_until("0\r\n\r\n").find(" 200 "), std::string::npos);
  const auto span = span_of("POST /oai/api/v1/completions");
  ASSERT_TRUE(span.has_value());
  EXPECT_NE(text_of(span->attributes, "tuft.request_id"), "");
  EXPECT_NE(text_of(span->attributes, "tuft.operation_type"), "");
  stop();
  generation.forget_listeners();
}

TEST_F(HttpTelemetry, TheSpanOfAClientThatDoesNotWaitSaysWhatItAskedFor) {
  std::promise<void> began;
  unanswered_began = &began;
  options.routes = kUnansweredRoutes;
  start();
  {
    TestClient client(server->port());
    client.send(
        request_text("GET", "/api/v1/a_request_that_nobody_answers", "", {{"User-Agent", "a client of a test"}}));
    began.get_future().wait();
  }
  const auto span = span_of("GET /api/v1/a_request_that_nobody_answers");
  ASSERT_TRUE(span.has_value());
  EXPECT_EQ(text_of(span->attributes, "url.path"), "/api/v1/a_request_that_nobody_answers");
  EXPECT_EQ(text_of(span->attributes, "user_agent.original"), "a client of a test");
  EXPECT_EQ(text_of(span->attributes, "error.type"), "client_gone");
}

// Anybody could push the spans of users out of the queues and archives otherwise.
TEST_F(HttpTelemetry, RequestsOfStrangersAreCountedAndNotTraced) {
  start();
  const double refused_before = answered("/api/v1/get_info", "403");
  const Headers no_key = {{"X-API-Key", ""}};
  EXPECT_EQ(post("get_info", "{}", no_key).status, 401);
  EXPECT_EQ(post("get_info", "{}", {{"X-API-Key", "tml-not-a-key"}}).status, 403);
  EXPECT_EQ(call("GET", "/nowhere", "", no_key).status, 404);
  EXPECT_EQ(call("PUT", "/api/v1/get_info", "", no_key).status, 405);
  for (const char* open : {"/docs", "/openapi.json"}) EXPECT_EQ(call("GET", open, "", no_key).status, 200);
  EXPECT_GE(call("GET", "/api/v1/archives?ticket=guess", "", no_key).status, 400);
  EXPECT_GE(call("GET", "/api/v1/trace_exports?token=guess", "", no_key).status, 400);
  EXPECT_EQ(post("get_info", R"({"model_id":"m"})").status, 200);
  ASSERT_TRUE(span_of("POST /api/v1/get_info").has_value());
  ASSERT_TRUE(collector.flush());
  const auto spans = collector.receiver.spans();
  const auto refusals = std::count_if(spans.begin(), spans.end(), [](const auto& span) {
    const std::string status = text_of(span.attributes, "http.response.status_code");
    return status == "401" || status == "403";
  });
  EXPECT_LE(refusals, 1) << "only with a log record, of which there is one a second";
  EXPECT_EQ(static_cast<ptrdiff_t>(spans.size()) - refusals, 1);
  EXPECT_EQ(answered("/api/v1/get_info", "403"), refused_before + 1);
}

// A thousand sessions send a hundred heartbeats a second, which say nothing new.
TEST_F(HttpTelemetry, OfHeartbeatsSomeAreTracedAndAllAreCounted) {
  start();
  const std::string name = "POST /api/v1/session_heartbeat";
  const double answered_before = answered("/api/v1/session_heartbeat", "200");
  const Nanos begin = system_clock().monotonic();
  for (int i = 0; i < 400; ++i) ASSERT_EQ(post("session_heartbeat", R"({"session_id":"s-alice"})").status, 200);
  const Nanos seconds = (system_clock().monotonic() - begin) / kSecond + 2;
  EXPECT_EQ(answered("/api/v1/session_heartbeat", "200"), answered_before + 400);
  const size_t traced = count_spans(name);
  EXPECT_GT(traced, 0U);
  EXPECT_LE(traced, static_cast<size_t>(seconds) * 2 * api::HttpTelemetry::kTracedMax);  // two I/O threads
  // Those that fail and those of a client's own trace always are.
  for (int i = 0; i < 2 * api::HttpTelemetry::kTracedMax; ++i)
    EXPECT_EQ(post("session_heartbeat", R"({"session_id":""})").status, 422);
  EXPECT_EQ(post("session_heartbeat", R"({"session_id":"s-alice"})",
                 {{"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}})
                .status,
            200);
  // The span of a request ends after its answer.
  const size_t wanted = traced + 2 * api::HttpTelemetry::kTracedMax + 1;
  const Nanos give_up = system_clock().monotonic() + 10 * kSecond;
  do {
    ASSERT_TRUE(collector.flush());
  } while (count_spans(name) < wanted && system_clock().monotonic() < give_up);
  EXPECT_GE(count_spans(name), wanted);
}

// One connection, so that one I/O thread counts.
TEST_F(HttpTelemetry, InAFloodOfReadsSomeAreTracedAndAllAreCounted) {
  start();
  const std::string name = "GET /api/v1/auth/apikey/me";
  const std::map<std::string, std::string> labels = {{"http.request.method", "GET"},
                                                     {"http.route", "/api/v1/auth/apikey/me"},
                                                     {"http.response.status_code", "200"},
                                                     {"url.scheme", "http"}};
  const double before = histogram_count("http.server.request.duration", labels);
  constexpr int kReads = 4 * api::HttpTelemetry::kTracedReadsMax;
  TestClient client(server->port());
  const auto read = [&](const Headers& headers) {
    ASSERT_TRUE(client.send(request_text("GET", "/api/v1/auth/apikey/me", "", headers)));
    ASSERT_EQ(client.read_reply().status, 200);
  };
  // A connection answers the next request after it has recorded the last one.
  const auto await_records = [&] {
    ASSERT_TRUE(client.send(request_text("GET", "/api/v1/healthz", "")));
    ASSERT_EQ(client.read_reply().status, 200);
  };
  const Nanos begin = system_clock().monotonic();
  for (int i = 0; i < kReads; ++i) read({});
  await_records();
  const Nanos seconds = (system_clock().monotonic() - begin) / kSecond + 1;
  EXPECT_EQ(histogram_count("http.server.request.duration", labels), before + kReads);
  const size_t traced = count_spans(name);
  EXPECT_GE(traced, static_cast<size_t>(api::HttpTelemetry::kTracedReadsMax));
  EXPECT_LE(traced, static_cast<size_t>(seconds) * api::HttpTelemetry::kTracedReadsMax);
  // Those of another user, of a client's own trace, and those that fail are not left out.
  for (int i = 0; i < kReads / 2; ++i) read({});
  await_records();
  ASSERT_TRUE(collector.flush());
  const size_t alone = count_spans(name);
  read({{"X-API-Key", "tml-bob"}});
  read({{"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}});
  ASSERT_TRUE(client.send(request_text("GET", "/api/v1/samplers/none", "")));
  EXPECT_EQ(client.read_reply().status, 404);
  await_records();
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(count_spans(name), alone + 2);
  EXPECT_EQ(count_spans("GET /api/v1/samplers/{sampler_id}"), 1U);
}

// ---- GET /metrics

class Metrics : public ServerTest {
 protected:
  Metrics() {
    EXPECT_TRUE(telemetry::init_telemetry({.enabled = false}).ok());
    metrics::futures().created.add(1, {{"operation_type", "sample"}});
  }
  ~Metrics() override { telemetry::shutdown_telemetry(); }
  Reply scrape(const Headers& headers = {}) { return call("GET", "/metrics", "", headers); }
};

TEST_F(Metrics, WithoutATokenOnlyLocalClientsMayRead) {
  start();
  const Reply reply = scrape({{"X-API-Key", ""}});
  EXPECT_EQ(reply.status, 200);
  EXPECT_NE(reply.headers.at("content-type").find("text/plain"), std::string::npos);
  EXPECT_NE(reply.body.find("tuft_futures_created_total"), std::string::npos);
  EXPECT_FALSE(reply.has("traceresponse"));
  for (const char* header : {"X-Forwarded-For", "Forwarded", "Via", "X-Real-IP", "X-Forwarded-Proto"}) {
    expect_refusal(scrape({{header, "for=10.0.0.1"}}), 403, "metrics_token");
  }
}

// DNS rebinding: a web page can resolve its own name to this machine, but the browser sends that name as Host.
TEST_F(Metrics, WithoutATokenTheHostMustNotBeAName) {
  start();
  for (const char* host : {"localhost:10610", "LOCALHOST", "127.0.0.1:10610", "[::1]:10610", "127.0.0.1"}) {
    EXPECT_EQ(scrape({{"Host", host}}).status, 200) << host;
  }
  for (const char* host : {"evil.example:10610", "localhost.evil.example", "127.0.0.1.evil.example", "evil"}) {
    expect_refusal(scrape({{"Host", host}}), 403, "localhost");
  }
}

TEST_F(Metrics, TokenGrantsAccess) {
  options.metrics.token = "s3cret";
  start();
  EXPECT_EQ(scrape({{"Authorization", "Bearer s3cret"}, {"X-Forwarded-For", "10.0.0.1"}}).status, 200);
  EXPECT_EQ(scrape({{"Authorization", "Bearer s3cret"}, {"Host", "tuft.example"}}).status, 200);
  EXPECT_EQ(scrape({{"Authorization", "bearer s3cret"}}).status, 200);
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3cret0", "Basic s3cret", "s3cret"}) {
    expect_refusal(scrape({{"Authorization", wrong}}), 403, "Bearer");
  }
}

TEST_F(Metrics, DisabledEndpointIsNotFound) {
  options.metrics.enabled = false;
  start();
  expect_refusal(scrape(), 404, "endpoint");
}

TEST_F(Metrics, AcceptHeaderChoosesTheFormat) {
  start();
  const Reply reply = scrape({{"Accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}});
  EXPECT_NE(reply.headers.at("content-type").find("application/openmetrics-text"), std::string::npos);
  EXPECT_TRUE(reply.body.ends_with("# EOF\n"));
}

TEST_F(Metrics, PageIncludesTheWorkers) {
  control.worker_metrics = {{"base/model", telemetry::metrics_snapshot()}, {"other", "not a snapshot"}};
  start();
  const Reply reply = scrape();
  EXPECT_EQ(reply.status, 200);
  EXPECT_NE(reply.body.find(R"(worker="base/model")"), std::string::npos);
}

}  // namespace
}  // namespace tuft::api
