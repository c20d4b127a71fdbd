// The questions to the observer over HTTP: parameters, answers, and who may ask.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "api/handlers/tar_gz.h"
#include "api/routing/router.h"
#include "api/tests/parsed_json.h"
#include "api/tests/test_client.h"

namespace tuft::api {
namespace {

using ::testing::HasSubstr;

constexpr const char* kBase = "/api/v1/observe/";

class Observe : public ServerTest {
 protected:
  Observe() { start(); }
  Reply ask(const std::string& what, const std::string& key = "tml-alice") {
    return call("GET", kBase + what, "", {{"X-API-Key", key}});
  }
  Json json(const std::string& what, const std::string& key = "tml-alice") {
    const Reply reply = ask(what, key);
    EXPECT_EQ(reply.status, 200) << what << ": " << reply.body;
    EXPECT_EQ(reply.headers.at("content-type"), "application/json");
    const Json parsed = Json::parse(reply.body);
    EXPECT_TRUE(parsed.good()) << reply.body;
    return parsed;
  }
  FakeObserver& observer() { return control.fake_observer; }
};

TEST_F(Observe, WhoAsks) {
  const Json own = json("whoami");
  EXPECT_EQ(own["user"].str(), R"("alice")");
  EXPECT_EQ(own["operator"].str(), R"(false)");
  EXPECT_EQ(own["store"].str(), R"(true)");
  EXPECT_EQ(own["console"].str(), R"(true)");
  EXPECT_GT(own["server_time"].number(), 1.6e15);
  EXPECT_EQ(json("whoami", "tml-carol")["operator"].str(), R"(true)");
  const Reply bearer =
      call("GET", std::string(kBase) + "whoami", "", {{"X-API-Key", ""}, {"Authorization", "Bearer tml-bob"}});
  EXPECT_EQ(Json::parse(bearer.body)["user"].str(), R"("bob")");
}

// A route that is added without a thought of rights fails here.
TEST_F(Observe, NoRouteAnswersWithoutAKeyOrToAnUnknownParameter) {
  size_t count = 0;
  for (const Route& route : routes()) {
    if (!route.pattern.starts_with(kBase)) continue;
    ++count;
    std::string path(route.pattern);
    for (const auto& [name, value] :
         {std::pair<std::string, std::string>{"{trace_id}", FakeObserver::kTrace}, {"{run_id}", FakeObserver::kRun}}) {
      if (const size_t at = path.find(name); at != path.npos) path.replace(at, name.size(), value);
    }
    EXPECT_EQ(call("GET", path, "", {{"X-API-Key", ""}}).status, 401) << path;
    EXPECT_EQ(call("GET", path, "", {{"X-API-Key", "wrong"}}).status, 403) << path;
    const Reply unknown = call("GET", path + "?nonsense=1");
    EXPECT_TRUE(unknown.status == 422 || unknown.status == 400) << path << ": " << unknown.status;
    EXPECT_THAT(unknown.body, HasSubstr("nonsense")) << path;
    EXPECT_EQ(route.threads, Threads::kQuery) << path;
  }
  EXPECT_GE(count, 19U);
}

TEST_F(Observe, TracesAndTheirFilter) {
  const Json found = json(
      "traces?from=1000&until=2000.5&session=s&run=r&sampler=p&request=q&operation=sample&base_model=m"
      "&user=bob&service=x&name=a*&text=t&status=error&min_duration=1.5&max_duration=9&limit=3");
  EXPECT_EQ(found["traces"][0]["trace_id"].text(), FakeObserver::kTrace);
  EXPECT_THAT(ask("traces").body, HasSubstr("\"start\":1700000000000001.5,\"duration\":2.5"));
  EXPECT_EQ(found["next"].str(), R"("more")");
  EXPECT_EQ(json("traces?cursor=more")["next"].str(), R"(null)");
  (void)json("traces?from=1000&until=2000.5&session=s&status=error&min_duration=1.5&user=bob&name=a*");
  const telemetry_store::Filter filter = observer().filter();
  EXPECT_EQ(filter.time.from, 1'000'000);
  EXPECT_EQ(filter.time.until, 2'000'500);
  EXPECT_EQ(filter.session, "s");
  EXPECT_EQ(filter.user, "bob");
  EXPECT_EQ(filter.name, "a*");
  EXPECT_EQ(filter.failed, true);
  EXPECT_EQ(filter.duration_min, 1'500);
  (void)json("traces?from=-15m");
  const Nanos before = system_clock().wall() - observer().filter().time.from;
  EXPECT_NEAR(to_seconds(before), 900, 60);
  EXPECT_EQ(json("traces", "tml-bob")["traces"].size(), 0U);
}

TEST_F(Observe, WrongParametersAreNamed) {
  for (const auto& [query, part] : {std::pair<std::string, std::string>{"traces?from=yesterday", "from"},
                                    {"traces?from=-15x", "from"},
                                    {"traces?from=-", "from"},
                                    {"traces?from=2000&until=1000", "from"},
                                    {"traces?until=nan", "until"},
                                    {"traces?until=1e300", "until"},
                                    {"traces?limit=0", "limit"},
                                    {"traces?limit=1001", "limit"},
                                    {"traces?status=maybe", "status"},
                                    {"traces?min_duration=-1", "min_duration"},
                                    {"traces?min_duration=2&max_duration=1", "min_duration"},
                                    {"traces?name=%00", "name"},
                                    {"traces?name=" + std::string(257, 'a'), "name"},
                                    {"traces?limit=1&limit=2", "limit"},
                                    {"traces/series?fn=sum", "fn"},
                                    {"traces/series?by=color", "by"},
                                    {"traces/series?step=1", "step"},
                                    {"traces/series?step=0", "step"},
                                    {"logs?level=loud", "level"},
                                    {"logs?trace=xyz", "trace"},
                                    {"logs?after=a&cursor=b", "after"},
                                    {"logs?event=a&name=b", "event"},
                                    {"metrics/query", "name"},
                                    {"metrics/query?name=m&fn=sum", "fn"},
                                    {"metrics/query?name=m&where=a", "where"},
                                    {"runs?limit=201", "limit"},
                                    {"runs?cursor=x", "cursor"},
                                    {"runs/s1:train:0/steps?after=-1", "after"},
                                    {"runs/s1:train:0/steps?points=5001", "points"}}) {
    const Reply reply = ask(query);
    EXPECT_TRUE(reply.status == 422 || reply.status == 400) << query << ": " << reply.status;
    EXPECT_THAT(reply.body, HasSubstr(part)) << query;
  }
}

TEST_F(Observe, HistogramAndSeries) {
  EXPECT_EQ(ask("traces/histogram").body, R"({"bounds":[1,2000],"counts":[1,2,3],"failed":[0,0,1]})");
  const Json series = json("traces/series?fn=p95&by=name&from=0&until=1000000000&step=10000000");
  EXPECT_EQ(series["step"].str(), R"(10000000)");
  EXPECT_EQ(series["series"][0]["key"].str(), R"("name")");
  EXPECT_EQ(series["series"][0]["points"], Json::parse("[1e6,null,2500000]"));
  EXPECT_EQ(observer().step(), 10 * kSecond);
  (void)json("traces/series");
  EXPECT_EQ(observer().step(), 30 * kSecond);
}

TEST_F(Observe, AQuestionOfAChartThatManyAskIsAnsweredOnce) {
  constexpr int kBrowsers = 20;
  const std::string body = ask("traces/series?from=0").body;
  for (int i = 1; i < kBrowsers; ++i) EXPECT_EQ(ask("traces/series?from=0").body, body);
  EXPECT_LT(observer().series_asked(), kBrowsers);  // one, unless this takes longer than a second
  const int before = observer().series_asked();
  EXPECT_EQ(ask("traces/series?from=0").headers.at("cache-control"), "private, no-store");
  (void)ask("traces/series?from=0", "tml-bob");
  (void)ask("traces/series?from=0&fn=errors");
  EXPECT_GE(observer().series_asked(), before + 2) << "others' answers and those to other questions are others";
  EXPECT_EQ(ask("traces/series?from=x").status, 422);
}

TEST_F(Observe, ATraceWithHostileTexts) {
  const std::string path = std::string("traces/") + FakeObserver::kTrace;
  const Json trace = json(path);
  const Json& span = trace["spans"][0];
  EXPECT_EQ(span["name"].str(), R"("bad ? text\n")");
  EXPECT_EQ(span["kind"].str(), R"("server")");
  EXPECT_EQ(span["attributes"], Json::parse(R"({"text":"a\"b","number":1.5,"list":[1,2],"bad":"NaN"})"));
  EXPECT_EQ(span["parent_id"].str(), R"(null)");
  EXPECT_EQ(trace["critical_path"][0]["span_id"].str(), R"("00000000000000aa")");
  EXPECT_EQ(trace["duration"].str(), R"(3000)");
  EXPECT_FALSE(trace["explanation"]["summary"].text().empty());
  const Json perfetto = json(path + "/perfetto");
  EXPECT_EQ(perfetto["traceEvents"][1]["ph"].str(), R"("X")");
  EXPECT_EQ(perfetto["traceEvents"][1]["dur"].str(), R"(3000)");
  EXPECT_THAT(ask(path + "/perfetto").headers.at("content-disposition"), HasSubstr("attachment"));
}

TEST_F(Observe, WhatIsNotThereAndWhatIsNotYours) {
  for (const std::string& path :
       {std::string("traces/") + FakeObserver::kTrace, std::string("runs/") + FakeObserver::kRun,
        std::string("runs/") + FakeObserver::kRun + "/steps"}) {
    std::string never = path;
    never.replace(never.find_first_of("0s", never.find('/')), 1, "9");
    const Reply foreign = ask(path, "tml-bob");
    EXPECT_EQ(foreign.status, 404) << path;
    EXPECT_EQ(foreign.body, ask(never, "tml-bob").body) << path;
  }
  EXPECT_EQ(ask("traces/..%2f").status, 404);
  EXPECT_EQ(ask("traces/x").body, ask("traces/" + std::string(32, '0')).body);
}

class ObserveLarge : public ServerTest {
 protected:
  ObserveLarge() {
    control.fake_observer.make_large(20'000);
    start();
  }
  int64_t charged() const { return control.fake_generation.memory->held_by("alice"); }
  static inline const std::string kTraces = std::string(kBase) + "traces/" + FakeObserver::kTrace;
  static inline const std::vector<std::string> kLargeAnswers = {kTraces, kTraces + "/perfetto",
                                                                std::string(kBase) + "logs"};
};

TEST_F(ObserveLarge, WhatWasReadIsChargedUntilTheClientHasIt) {
  for (const std::string& target : kLargeAnswers) {
    TestClient slow(server->port());
    slow.send(request_text("GET", target, ""));
    EXPECT_THAT(slow.read_until("\r\n\r\n"), HasSubstr("200 OK")) << target;
    // The sockets have no room for the rest.
    EXPECT_GT(charged(), 20'000 * 1'000) << target;
    slow.close();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (charged() > 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_EQ(charged(), 0) << target;
  }
}

TEST_F(ObserveLarge, WhatIsTooMuchForTheUserIsRefused) {
  control.fake_generation.memory_max = 10'000'000;
  for (const std::string& target : kLargeAnswers) {
    expect_refusal(call("GET", target), 429, "limits.queued_bytes_per_user_max");
  }
  expect_refusal(call("GET", std::string(kBase) + "metrics/query?name=m"), 429, "limits.queued_bytes_per_user_max");
  expect_refusal(call("GET", std::string(kBase) + "traces/series"), 429, "limits.queued_bytes_per_user_max");
  const Reply answer = call("POST", "/mcp",
                            R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_trace",)"
                            R"("arguments":{"trace_id":")" +
                                std::string(FakeObserver::kTrace) + R"("}}})",
                            {{"Content-Type", "application/json"}, {"MCP-Protocol-Version", "2025-11-25"}});
  EXPECT_THAT(answer.body, HasSubstr("limits.queued_bytes_per_user_max"));
  EXPECT_EQ(charged(), 0);
}

TEST_F(Observe, LogsAndFollowing) {
  const Json logs = json("logs?level=warning&event=e&trace=" + std::string(32, 'a') + "&after=n0");
  EXPECT_EQ(logs["logs"][0]["level"].str(), R"("warning")");
  EXPECT_EQ(logs["logs"][0]["time"].str(), R"(1.5)");
  EXPECT_EQ(logs["logs"][0]["trace_id"].str(), R"(null)");
  EXPECT_EQ(logs["newest"].str(), R"("n1")");
  EXPECT_EQ(observer().log_query().severity_min, 13);
  EXPECT_EQ(observer().log_query().filter.name, "e");
  EXPECT_EQ(observer().log_query().after, "n0");
}

TEST_F(Observe, Metrics) {
  EXPECT_EQ(json("metrics")["metrics"][0]["type"].str(), R"("counter")");
  const Json answer = json("metrics/query?name=tuft.x&fn=rate&by=a,b&where=k:v:w,l:&from=-1h");
  EXPECT_EQ(answer["fn"].str(), R"("rate")");
  EXPECT_EQ(answer["series"][0]["points"], Json::parse("[1,null]"));
  EXPECT_EQ(observer().metric_query().by, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(observer().metric_query().where, (std::map<std::string, std::string>{{"k", "v:w"}, {"l", ""}}));
  EXPECT_EQ(json("metrics/exemplars?name=tuft.x")["exemplars"].size(), 1U);
}

TEST_F(Observe, Things) {
  EXPECT_EQ(json("overview")["users_active"].str(), R"(null)");
  EXPECT_EQ(json("overview", "tml-carol")["users_active"].str(), R"(1)");
  const Json runs = json("runs?limit=7&cursor=2");
  EXPECT_EQ(runs["runs"][0]["run"].text(), FakeObserver::kRun);
  EXPECT_EQ(runs["runs"][0]["loss"].str(), R"(null)");
  EXPECT_EQ(runs["next"].str(), R"("3")");
  EXPECT_EQ(observer().part().offset, 2U);
  EXPECT_EQ(observer().part().limit, 7U);
  EXPECT_EQ(json("runs", "tml-bob")["next"].str(), R"(null)");
  const Json run = json("runs/s1:train:0");
  EXPECT_EQ(run["advice"][0].str(), R"("go faster")");
  EXPECT_EQ(run["time"]["parts"].size(), 5U);
  const Json steps = json("runs/s1:train:0/steps?after=0&points=10");
  EXPECT_EQ(steps["steps"][0]["loss"].str(), R"(null)");
  EXPECT_EQ(steps["steps"][0]["seconds"].str(), R"(0.5)");
  EXPECT_EQ(json("samplers")["samplers"][0]["model_path"].str(), R"(null)");
  EXPECT_EQ(json("sessions")["sessions"][0]["busy_share"].str(), R"(null)");
  EXPECT_EQ(json("tenants")["tenants"][0]["quotas"][0]["max"].str(), R"(null)");
  EXPECT_EQ(json("workers")["workers"][0]["state"].str(), R"("ready")");
  EXPECT_EQ(json("workers")["workers"][0]["host"].str(), R"(null)");
}

TEST_F(Observe, TheSystemAndItsBundleAreForOperators) {
  const Json own = json("system");
  EXPECT_EQ(own["config"].str(), R"(null)");
  EXPECT_EQ(own["workers"].str(), R"(null)");
  EXPECT_EQ(own["limits"]["runs_per_user_max"].str(), R"(256)");
  const Json whole = json("system", "tml-carol");
  EXPECT_EQ(whole["config"].str(), R"("port: 1\n")");
  EXPECT_EQ(whole["workers"][0]["base_model"].str(), R"("base/model")");
  EXPECT_EQ(whole["workers"][0]["state"].str(), R"("silent")");
  EXPECT_EQ(json("overview")["models"][0]["state"].str(), R"("draining")");
  expect_refusal(ask("bundle"), 403, "operators");
  const Reply bundle = ask("bundle", "tml-carol");
  EXPECT_EQ(bundle.status, 200) << bundle.body;
  EXPECT_EQ(bundle.headers.at("content-type"), "application/gzip");
  EXPECT_EQ(bundle.body.substr(0, 2), "\x1f\x8b");
}

TEST(TarGz, HasTheFormOfTar) {
  std::string tar;
  append_tar_file(tar, "a/b.txt", "hello", 1'700'000'000 * kSecond);
  end_tar(tar);
  ASSERT_EQ(tar.size(), 4U * 512);
  EXPECT_EQ(tar.substr(0, 7), "a/b.txt");
  EXPECT_EQ(tar.substr(124, 11), "00000000005");
  EXPECT_EQ(tar.substr(257, 5), "ustar");
  EXPECT_EQ(tar.substr(512, 5), "hello");
  const auto packed = gzip(tar);
  ASSERT_TRUE(packed.ok());
  EXPECT_LT(packed->size(), tar.size());
}

}  // namespace
}  // namespace tuft::api
