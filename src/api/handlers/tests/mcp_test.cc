// POST /mcp over a socket: who may use it, and what HTTP adds to the protocol (mcp/tests has the protocol itself).
#include <gmock/gmock.h>

#include "api/tests/test_client.h"

namespace tuft::api {
namespace {

using ::testing::HasSubstr;

constexpr const char* kList =
    R"({"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{)"
    R"("io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}})";

class Mcp : public ServerTest {
 protected:
  Mcp() { start(); }
  Reply send(const std::string& body, Headers changes = {}) {
    Headers headers = {{"X-API-Key", "tml-alice"},
                       {"Content-Type", "application/json"},
                       {"MCP-Protocol-Version", "2026-07-28"},
                       {"Mcp-Method", "tools/list"}};
    for (auto& [name, value] : changes) headers.insert_or_assign(name, value);
    return call("POST", "/mcp", body, headers);
  }
};

TEST_F(Mcp, AnswersWithOneObject) {
  const Reply reply = send(kList);
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("content-type"), "application/json");
  EXPECT_THAT(reply.body, HasSubstr("\"find_traces\""));
  EXPECT_FALSE(reply.has("mcp-session-id"));
}

TEST_F(Mcp, AsksAsTheUserOfTheKey) {
  std::string body = kList;
  body.replace(body.find("tools/list"), 10, "tools/call");
  body.replace(body.find(R"("params":{)"), 10, R"("params":{"name":"server_status",)");
  const auto user = [&](const Headers& key) {
    Headers headers = {{"Mcp-Method", "tools/call"}, {"Mcp-Name", "server_status"}};
    headers.insert(key.begin(), key.end());
    return send(body, headers).body;
  };
  EXPECT_THAT(user({}), HasSubstr(R"("user":"alice","operator":false)"));
  EXPECT_THAT(user({{"X-API-Key", "tml-carol"}}), HasSubstr(R"("user":"carol","operator":true)"));
  EXPECT_THAT(user({{"Authorization", "Bearer tml-bob"}}), HasSubstr(R"("user":"bob","operator":false)"));
}

TEST_F(Mcp, NeedsAKeyAndNoForeignPage) {
  EXPECT_EQ(send(kList, {{"X-API-Key", ""}}).status, 401);
  EXPECT_EQ(send(kList, {{"X-API-Key", "wrong"}}).status, 403);
  EXPECT_EQ(send(kList, {{"Origin", "https://evil.example"}}).status, 403);
  EXPECT_EQ(send(kList, {{"Origin", "null"}}).status, 403);
}

TEST_F(Mcp, RefusesWhatIsNotJson) {
  EXPECT_EQ(send(kList, {{"Content-Type", "text/plain"}}).status, 415);
  EXPECT_EQ(send("{").status, 400);
  EXPECT_EQ(send(std::string(70'000, ' ') + kList).status, 413);
}

TEST_F(Mcp, HasNoStream) {
  const Reply reply = call("GET", "/mcp", "", {{"X-API-Key", "tml-alice"}});
  EXPECT_EQ(reply.status, 405);
  EXPECT_EQ(reply.headers.at("allow"), "POST");
}

TEST_F(Mcp, NotificationsAreAccepted) {
  const Reply reply = send(R"({"jsonrpc":"2.0","method":"notifications/initialized"})");
  EXPECT_EQ(reply.status, 202);
  EXPECT_EQ(reply.body, "");
}

TEST_F(Mcp, HeaderThatRoutesComesOnce) {
  TestClient client(server->port());
  const std::string body = kList;
  client.send(
      "POST /mcp HTTP/1.1\r\nHost: x\r\nX-API-Key: tml-alice\r\nContent-Type: application/json\r\n"
      "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\nMcp-Method: tools/call\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_EQ(client.read_reply().status, 400);
}

}  // namespace
}  // namespace tuft::api
