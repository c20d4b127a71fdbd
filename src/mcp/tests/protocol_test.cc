#include "mcp/protocol.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mcp/json.h"
#include "mcp/tests/fake_observer.h"

namespace tuft::mcp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kVersionKey = "io.modelcontextprotocol/protocolVersion";
constexpr const char* kCapabilitiesKey = "io.modelcontextprotocol/clientCapabilities";
constexpr const char* kMeta = R"("_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",)"
                              R"("io.modelcontextprotocol/clientCapabilities":{}})";

class Protocol : public ::testing::Test {
 protected:
  Reply send(const std::string& body, const Headers& headers) {
    return answer({observer_, user_, clock_, "1.2.3", [](int64_t) { return Status(); }}, body, headers);
  }
  Reply send(const std::string& method, const std::string& params = "", const std::string& name = "") {
    const std::string body = R"({"jsonrpc":"2.0","id":7,"method":")" + method + R"(","params":{)" + kMeta +
                             (params.empty() ? "" : "," + params) + "}}";
    return send(body, Headers{"2026-07-28", method, name});
  }
  Input result(const Reply& reply) {
    EXPECT_EQ(reply.status, 200) << reply.body;
    const Input message = Input::parse(reply.body);
    EXPECT_EQ(message["jsonrpc"], "2.0");
    EXPECT_FALSE(message.contains("error")) << reply.body;
    return message["result"];
  }
  static int error_code(const Reply& reply) {
    const Input message = Input::parse(reply.body);
    EXPECT_FALSE(message.contains("result")) << reply.body;
    return message["error"]["code"];
  }

  FakeObserver observer_;
  control::UserId user_{"alice"};
  FakeClock clock_;
};

TEST_F(Protocol, DiscoverySaysWhatThereIs) {
  const Input found = result(send("server/discover"));
  EXPECT_EQ(found["resultType"], "complete");
  EXPECT_THAT(found["supportedVersions"].get<std::vector<std::string>>(), ElementsAre("2026-07-28"));
  EXPECT_TRUE(found["capabilities"].contains("tools"));
  EXPECT_EQ(found["_meta"]["io.modelcontextprotocol/serverInfo"]["version"], "1.2.3");
  EXPECT_GE(found["ttlMs"].get<int>(), 0);
  EXPECT_EQ(found["cacheScope"], "public");
}

TEST_F(Protocol, ToolsAreListedWithStrictSchemas) {
  const Input found = result(send("tools/list"));
  std::set<std::string> names;
  for (const Input& tool : found["tools"]) {
    names.insert(tool["name"].get<std::string>());
    EXPECT_EQ(tool["inputSchema"]["type"], "object");
    EXPECT_EQ(tool["inputSchema"]["additionalProperties"], false) << tool["name"];
    EXPECT_EQ(tool["outputSchema"]["type"], "object");
    EXPECT_EQ(tool["annotations"]["readOnlyHint"], true);
    EXPECT_EQ(tool["annotations"]["destructiveHint"], false);
    EXPECT_FALSE(tool["description"].get<std::string>().empty());
  }
  EXPECT_THAT(names, ElementsAre("find_traces", "get_trace", "list_metrics", "list_runs", "list_tenants",
                                 "query_metric", "run_curve", "search_logs", "server_status"));
}

TEST_F(Protocol, ToolsTakeExactlyTheArgumentsOfTheirSchemas) {
  const Input found = result(send("tools/list"));
  for (const Input& tool : found["tools"]) {
    const std::string name = tool["name"];
    // The refusal of an unknown argument lists those that are read.
    const Input refused = result(send(
        "tools/call",
        R"("name":")" + name + R"(","arguments":{"trace_id":"x","run":"r","fn":"rate","name":"n","zzz":1})", name));
    ASSERT_EQ(refused["isError"], true) << name;
    const Input one = result(send("tools/call", R"("name":")" + name + R"(","arguments":{"zzz":1})", name));
    const std::string text = one["content"][0]["text"];
    if (text.find("is required") != std::string::npos) continue;
    for (const auto& [argument, schema] : tool["inputSchema"]["properties"].items()) {
      EXPECT_THAT(text, HasSubstr(argument)) << name;
    }
  }
}

TEST_F(Protocol, CallReturnsStructureAndText) {
  observer_.seen.ready = true;
  const Input found = result(send("tools/call", R"("name":"server_status")", "server_status"));
  EXPECT_EQ(found["isError"], false);
  EXPECT_EQ(found["structuredContent"]["ready"], true);
  EXPECT_EQ(found["structuredContent"]["you"]["user"], "alice");
  EXPECT_EQ(Input::parse(found["content"][0]["text"].get<std::string>()), found["structuredContent"]);
}

TEST_F(Protocol, IdsComeBackAsTheyWere) {
  const std::string tail = R"(,"method":"server/discover","params":{)" + std::string(kMeta) + "}}";
  const Headers headers{"2026-07-28", "server/discover", ""};
  EXPECT_EQ(Input::parse(send(R"({"jsonrpc":"2.0","id":"a-1")" + tail, headers).body)["id"], "a-1");
  EXPECT_EQ(Input::parse(send(R"({"jsonrpc":"2.0","id":-5)" + tail, headers).body)["id"], -5);
  for (const char* id : {"null", "1.5", "{}", "[1]", "true"}) {
    const Reply reply = send(R"({"jsonrpc":"2.0","id":)" + std::string(id) + tail, headers);
    EXPECT_EQ(reply.status, 400) << id;
    EXPECT_EQ(error_code(reply), -32600) << id;
  }
}

TEST_F(Protocol, HeadersMustAgreeWithTheBody) {
  const std::string body =
      R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_runs",)" + std::string(kMeta) + "}}";
  EXPECT_EQ(send(body, {"2026-07-28", "tools/call", "list_runs"}).status, 200);
  EXPECT_EQ(send(body, {"2026-07-28", "tools/call", "=?base64?bGlzdF9ydW5z?="}).status, 200);
  for (const Headers& headers :
       {Headers{"", "tools/call", "list_runs"}, Headers{"2026-07-28", "", "list_runs"},
        Headers{"2026-07-28", "tools/call", ""}, Headers{"2026-07-28", "tools/list", "list_runs"},
        Headers{"2026-07-28", "tools/call", "get_trace"}, Headers{"2025-11-25", "tools/call", "list_runs"},
        Headers{"2026-07-28", "tools/call", "=?base64?bGlzdF9ydW5z!?="}}) {
    const Reply reply = send(body, headers);
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(error_code(reply), -32020) << reply.body;
  }
}

TEST_F(Protocol, OtherVersionsAreNamedWithThoseThatAreThere) {
  std::string body = R"({"jsonrpc":"2.0","id":1,"method":"tools/list","params":{)" + std::string(kMeta) + "}}";
  body.replace(body.find("2026-07-28"), 10, "2031-01-01");
  const Reply reply = send(body, {"2031-01-01", "tools/list", ""});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(error_code(reply), -32022);
  const Input data = Input::parse(reply.body)["error"]["data"];
  EXPECT_EQ(data["requested"], "2031-01-01");
  EXPECT_EQ(data["supported"][0], "2026-07-28");
}

TEST_F(Protocol, EnvelopeIsRequired) {
  for (const std::string& params :
       {std::string("{}"), std::string("[]"), std::string("null"),
        R"({"_meta":{")" + std::string(kVersionKey) + R"(":"2026-07-28"}})",
        R"({"_meta":{")" + std::string(kVersionKey) + R"(":5,")" + kCapabilitiesKey + R"(":{}}})"}) {
    const Reply reply = send(R"({"jsonrpc":"2.0","id":1,"method":"tools/list","params":)" + params + "}",
                             {"2026-07-28", "tools/list", ""});
    EXPECT_EQ(reply.status, 400) << params;
    EXPECT_EQ(error_code(reply), -32602) << params;
  }
}

TEST_F(Protocol, MalformedMessagesAreRefused) {
  const Headers headers{"2026-07-28", "tools/list", ""};
  EXPECT_EQ(error_code(send("{", headers)), -32700);
  EXPECT_EQ(error_code(send("\xff", headers)), -32700);
  for (const char* body : {"[]", "[{}]", "1", "null", "{}", R"({"jsonrpc":"1.0","id":1,"method":"tools/list"})",
                           R"({"jsonrpc":"2.0","id":1})", R"({"jsonrpc":"2.0","id":1,"result":{}})",
                           R"({"jsonrpc":"2.0","id":1,"method":7})"}) {
    const Reply reply = send(body, headers);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_EQ(error_code(reply), -32600) << body;
  }
  EXPECT_EQ(send(std::string(60'000, '['), headers).status, 400);
}

TEST_F(Protocol, UnknownMethodsAndToolsAreNotFound) {
  EXPECT_EQ(send("resources/list").status, 404);
  EXPECT_EQ(error_code(send("resources/list")), -32601);
  EXPECT_EQ(error_code(send("initialize")), -32601);  // with the envelope of the revision that has none
  EXPECT_EQ(error_code(send("tools/call", R"("name":"rm")", "rm")), -32602);
  EXPECT_EQ(error_code(send("tools/call", R"("name":5)", "5")), -32602);
  EXPECT_EQ(error_code(send("tools/call", R"("name":"list_runs","arguments":[1])", "list_runs")), -32602);
  EXPECT_EQ(error_code(send("tools/list", R"("cursor":"x")")), -32602);
}

TEST_F(Protocol, NotificationsHaveNoAnswer) {
  const Reply reply = send(R"({"jsonrpc":"2.0","method":"notifications/initialized"})", {"2025-11-25", "", ""});
  EXPECT_EQ(reply.status, 202);
  EXPECT_EQ(reply.body, "");
  EXPECT_EQ(send(R"({"jsonrpc":"2.0","method":"notifications/initialized"})", {"1999-01-01", "", ""}).status, 400);
}

class OlderClient : public Protocol {
 protected:
  Reply ask(const std::string& method, const std::string& params, const char* version) {
    return send(R"({"jsonrpc":"2.0","id":1,"method":")" + method + R"(","params":)" + params + "}", {version, "", ""});
  }
};

TEST_F(OlderClient, ShakesHandsWithoutASession) {
  for (const char* version : {"2025-11-25", "2025-06-18"}) {
    const Input found = result(ask("initialize",
                                   R"({"protocolVersion":")" + std::string(version) +
                                       R"(","capabilities":{},"clientInfo":{"name":"c","version":"1"}})",
                                   ""));
    EXPECT_EQ(found["protocolVersion"], version);
    EXPECT_EQ(found["serverInfo"]["name"], "tuft");
    EXPECT_TRUE(found["capabilities"].contains("tools"));
    EXPECT_EQ(result(ask("tools/list", "{}", version))["tools"].size(), 9u);
    EXPECT_EQ(result(ask("ping", "{}", version)), Input::object());
    EXPECT_FALSE(result(ask("tools/call", R"({"name":"list_runs"})", version)).contains("resultType"));
  }
}

TEST_F(OlderClient, IsOfferedTheNewestOfItsKind) {
  EXPECT_EQ(result(ask("initialize", R"({"protocolVersion":"2024-11-05"})", ""))["protocolVersion"], "2025-11-25");
  EXPECT_EQ(result(ask("initialize", "{}", ""))["protocolVersion"], "2025-11-25");
}

TEST_F(OlderClient, GetsErrorsInAnswersThatItReads) {
  const Reply reply = ask("resources/list", "{}", "2025-06-18");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(error_code(reply), -32601);
}

TEST_F(Protocol, AnswersAnyBodyWithJson) {
  const std::string whole = R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"find_traces",)" +
                            std::string(kMeta) + R"(,"arguments":{"limit":3,"status":"ok","from":"-1h"}}})";
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const char c : {'\0', '"', '}', '[', '9', '\xff'}) {
      std::string body = whole;
      body[i] = c;
      const Reply reply = send(body, {"2026-07-28", "tools/call", "find_traces"});
      EXPECT_TRUE(reply.status == 202 || Input::accept(reply.body)) << body;
    }
    EXPECT_TRUE(Input::accept(send(whole.substr(0, i), Headers{}).body));
  }
}

}  // namespace
}  // namespace tuft::mcp
