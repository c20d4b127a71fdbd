// The login to the web console, its cookie, and its files.
#include <gmock/gmock.h>

#include "api/handlers/console_assets.h"
#include "api/routing/console_sessions.h"
#include "api/tests/test_client.h"

namespace tuft::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Console : public ServerTest {
 protected:
  // Returns "tuft_console=<token>".
  std::string log_in(const std::string& key = "tml-alice") {
    const Reply reply = call("POST", "/console/login", R"({"key":")" + key + "\"}", {{"X-API-Key", ""}});
    EXPECT_EQ(reply.status, 200) << reply.body;
    const std::string cookie = reply.has("set-cookie") ? reply.headers.at("set-cookie") : "";
    return cookie.substr(0, cookie.find(';'));
  }
  Reply with_cookie(const std::string& cookie, Headers headers = {{"X-Tuft-Console", "1"}},
                    const std::string& path = "/api/v1/observe/whoami") {
    headers.emplace("X-API-Key", "");
    headers.emplace("Cookie", cookie);
    return call("GET", path, "", headers);
  }
};

TEST_F(Console, ALoginGivesACookieThatNoScriptReads) {
  start();
  const Reply reply = call("POST", "/console/login", R"({"key":"tml-alice"})", {{"X-API-Key", ""}});
  EXPECT_EQ(reply.status, 200);
  EXPECT_THAT(reply.body, HasSubstr(R"("user":"alice")"));
  EXPECT_THAT(reply.body, Not(HasSubstr("tml-alice")));
  const std::string& cookie = reply.headers.at("set-cookie");
  EXPECT_THAT(cookie,
              ::testing::MatchesRegex("tuft_console=[0-9a-f]{64}; HttpOnly; SameSite=Strict; Path=/; Max-Age=43200"));
  const Reply proxied = call("POST", "/console/login", R"({"key":"tml-alice"})", {{"X-Forwarded-Proto", "https"}});
  EXPECT_THAT(proxied.headers.at("set-cookie"), HasSubstr("; Secure"));
}

TEST_F(Console, AWrongKeyIsRefused) {
  start();
  expect_refusal(call("POST", "/console/login", R"({"key":"wrong"})"), 401, "not known");
  expect_refusal(call("POST", "/console/login", R"({"key":""})"), 401, "");
  expect_refusal(call("POST", "/console/login", R"({})"), 422, "key");
  expect_refusal(call("POST", "/console/login", R"({"key":"tml-alice","more":1})"), 400, "more");
  expect_refusal(call("POST", "/console/login", R"({"key":"tml-alice"})", {{"Origin", "https://evil.example"}}), 403,
                 "site");
}

TEST_F(Console, TheCookieStandsForTheKey) {
  start();
  const std::string cookie = log_in();
  EXPECT_THAT(with_cookie(cookie).body, HasSubstr(R"("user":"alice")"));
  EXPECT_EQ(with_cookie("other=1; " + cookie + "; third=2").status, 200);
  EXPECT_EQ(with_cookie(cookie, {{"X-Tuft-Console", "1"}}, "/api/v1/training_runs").status, 200);
  EXPECT_EQ(with_cookie(cookie, {{"X-Tuft-Console", "1"}}, "/oai/api/v1/models").status, 200);
  // A key that is sent wins.
  EXPECT_THAT(with_cookie(cookie, {{"X-Tuft-Console", "1"}, {"X-API-Key", "tml-bob"}}).body,
              HasSubstr(R"("user":"bob")"));
}

TEST_F(Console, TheCookieAloneIsNothing) {
  start();
  const std::string cookie = log_in();
  expect_refusal(with_cookie(cookie, {}), 401, "X-Tuft-Console");
  expect_refusal(with_cookie(cookie, {{"X-Tuft-Console", "0"}}), 401, "X-Tuft-Console");
  expect_refusal(with_cookie("tuft_console=" + std::string(64, 'a')), 401, "log in");
  expect_refusal(with_cookie("tuft_console=short"), 401, "");
  expect_refusal(with_cookie(cookie + "; " + cookie), 401, "");
}

TEST_F(Console, OtherSitesAreRefused) {
  start();
  const std::string cookie = log_in();
  const auto from = [&](const std::string& name, const std::string& value,
                        const std::string& host = "localhost:10610") {
    return with_cookie(cookie, {{"X-Tuft-Console", "1"}, {"Host", host}, {name, value}}).status;
  };
  EXPECT_EQ(from("Origin", "http://localhost:10610"), 200);
  EXPECT_EQ(from("Origin", "http://LOCALHOST:10610"), 200);
  EXPECT_EQ(from("Origin", "https://tuft.example", "tuft.example"), 200);
  EXPECT_EQ(from("Origin", "https://tuft.example:443", "tuft.example"), 200);
  for (const char* origin : {"http://evil.example", "http://localhost", "http://localhost:1", "null",
                             "http://localhost:10610.evil.example", "http://evil.example/localhost:10610"}) {
    EXPECT_EQ(from("Origin", origin), 403) << origin;
  }
  EXPECT_EQ(from("Sec-Fetch-Site", "same-origin"), 200);
  EXPECT_EQ(from("Sec-Fetch-Site", "cross-site"), 403);
  EXPECT_EQ(from("Sec-Fetch-Site", "same-site"), 403);
}

TEST_F(Console, ALogoutEndsTheSession) {
  start();
  const std::string cookie = log_in();
  const std::string other = log_in();
  EXPECT_EQ(call("POST", "/console/logout", "", {{"Cookie", cookie}}).status, 401);
  const Reply reply = call("POST", "/console/logout", "", {{"Cookie", cookie}, {"X-Tuft-Console", "1"}});
  EXPECT_EQ(reply.status, 204);
  EXPECT_THAT(reply.headers.at("set-cookie"), HasSubstr("Max-Age=0"));
  EXPECT_EQ(with_cookie(cookie).status, 401);
  EXPECT_EQ(with_cookie(other).status, 200);
  EXPECT_EQ(call("POST", "/console/logout", "", {{"Cookie", cookie}, {"X-Tuft-Console", "1"}}).status, 204);
}

TEST_F(Console, WhoIsSignedOutByALaterLoginIsToldWhy) {
  start();
  const std::string first = log_in();
  ::testing::internal::CaptureStderr();
  for (size_t i = 0; i < ConsoleSessions::kPerUserMax; ++i) {
    EXPECT_EQ(with_cookie(first).status, 200);
    log_in();
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("[console.session_displaced]"));
  expect_refusal(with_cookie(first), 401, "you were signed out because you logged in elsewhere");
}

TEST_F(Console, WithoutConsoleThereIsNone) {
  options.console = false;
  start();
  EXPECT_EQ(call("GET", "/console").status, 404);
  EXPECT_EQ(call("GET", "/").status, 404);
  EXPECT_EQ(call("POST", "/console/login", R"({"key":"tml-alice"})").status, 404);
  const Reply whoami = call("GET", "/api/v1/observe/whoami");
  EXPECT_EQ(whoami.status, 200);
  EXPECT_THAT(whoami.body, HasSubstr(R"("console":false)"));
}

TEST_F(Console, ItsPagesNeedNoKeyAndAllowNoForeignScript) {
  start();
  const Reply root = call("GET", "/", "", {{"X-API-Key", ""}});
  EXPECT_EQ(root.status, 307);
  EXPECT_EQ(root.headers.at("location"), "http://localhost/console");
  EXPECT_THAT(root.headers.at("content-security-policy"), HasSubstr("default-src 'none'"));
  for (const char* path : {"/console", "/console/", "/console/traces/abc?from=-1h", "/console/login"}) {
    const Reply page = call("GET", path, "", {{"X-API-Key", ""}});
    EXPECT_EQ(page.status, 200) << path;
    EXPECT_THAT(page.headers.at("content-type"), HasSubstr("text/html"));
    EXPECT_THAT(page.headers.at("content-security-policy"), HasSubstr("default-src 'none'; script-src 'self'"));
    EXPECT_THAT(page.headers.at("content-security-policy"), Not(HasSubstr("unsafe")));
    EXPECT_EQ(page.headers.at("x-content-type-options"), "nosniff");
    EXPECT_EQ(page.headers.at("referrer-policy"), "no-referrer");
  }
}

TEST_F(Console, ItsOtherAnswersHaveTheSamePolicyAndAreNotKept) {
  start();
  const Reply refused = call("POST", "/console/login", R"({"key":"tml-wrong"})");
  EXPECT_EQ(refused.status, 401);
  const Reply foreign = call("POST", "/console/login", R"({"key":"tml-alice"})", {{"Origin", "http://evil.example"}});
  EXPECT_EQ(foreign.status, 403);
  const Reply login = call("POST", "/console/login", R"({"key":"tml-alice"})");
  EXPECT_EQ(login.status, 200);
  for (const Reply* reply : {&refused, &foreign, &login}) {
    EXPECT_THAT(reply->headers.at("content-security-policy"), HasSubstr("default-src 'none'"));
    EXPECT_EQ(reply->headers.at("x-content-type-options"), "nosniff");
    EXPECT_EQ(reply->headers.at("cache-control"), "no-store");
  }
  for (const char* path : {"whoami", "overview", "runs", "system", "tenants"})
    EXPECT_EQ(call("GET", std::string("/api/v1/observe/") + path).headers.at("cache-control"), "private, no-store");
}

TEST_F(Console, ItsFilesAreKeptByBrowsers) {
  if (console_assets().empty()) GTEST_SKIP() << "this build has no console";
  start();
  for (const ConsoleAsset& asset : console_assets()) {
    const std::string path = "/console/" + std::string(asset.path);
    const Reply plain = call("GET", path);
    EXPECT_EQ(plain.status, 200) << path;
    EXPECT_EQ(plain.body, asset.bytes);
    EXPECT_EQ(plain.headers.at("etag"), asset.etag);
    EXPECT_THAT(plain.headers.at("cache-control"), HasSubstr(asset.name_has_hash ? "immutable" : "no-cache"));
    const Reply known = call("GET", path, "", {{"If-None-Match", std::string(asset.etag)}});
    EXPECT_EQ(known.status, 304);
    EXPECT_TRUE(known.body.empty());
    if (asset.gzip.empty()) continue;
    const Reply packed = call("GET", path, "", {{"Accept-Encoding", "br, gzip"}});
    EXPECT_EQ(packed.headers.at("content-encoding"), "gzip");
    EXPECT_EQ(packed.body, asset.gzip);
    EXPECT_FALSE(call("GET", path, "", {{"Accept-Encoding", "gzip;q=0"}}).has("content-encoding"));
  }
  expect_refusal(call("GET", "/console/assets/no-such-file.js"), 404, "no such file");
}

class Sessions : public ::testing::Test {
 protected:
  std::map<std::string, std::string, std::less<>> keys{{"k-alice", "alice"}, {"k-bob", "bob"}};
  FakeClock clock;
  ConsoleSessions sessions{[this](std::string_view key) -> Result<control::UserId> {
                             const auto found = keys.find(key);
                             if (found == keys.end()) return Error{ErrorCode::kPermissionDenied, "unknown", ""};
                             return control::UserId(found->second);
                           },
                           clock};
  std::string log_in(const char* key = "k-alice") { return sessions.login(key)->token; }
};

TEST_F(Sessions, EndAfterTheirTime) {
  const std::string token = log_in();
  clock.advance(ConsoleSessions::kLifetime - 1);
  EXPECT_EQ(sessions.authenticate(token)->str(), "alice");
  clock.advance(1);
  EXPECT_EQ(sessions.authenticate(token).error().reason, "console_session_ended");
  EXPECT_EQ(sessions.size(), 0U);
}

TEST_F(Sessions, EndWithTheirKey) {
  const std::string token = log_in();
  keys.erase("k-alice");
  EXPECT_EQ(sessions.authenticate(token).error().code, ErrorCode::kUnauthenticated);
  keys["k-alice"] = "alice";
  EXPECT_FALSE(sessions.authenticate(token).ok()) << "a session that has ended does not come back";
  const std::string second = log_in();
  keys["k-alice"] = "mallory";
  EXPECT_FALSE(sessions.authenticate(second).ok()) << "the key was given to somebody else";
}

TEST_F(Sessions, AreBoundedForEachUser) {
  const std::string bobs = log_in("k-bob");
  std::vector<std::string> tokens;
  for (size_t i = 0; i < ConsoleSessions::kPerUserMax + 3; ++i) tokens.push_back(log_in());
  EXPECT_EQ(sessions.size(), ConsoleSessions::kPerUserMax + 1);
  for (const size_t displaced : {0, 1, 2}) {
    const Error why = sessions.authenticate(tokens[displaced]).error();
    EXPECT_EQ(why.reason, "console_session_displaced");
    EXPECT_THAT(why.message, HasSubstr("signed out because you logged in elsewhere, and a user has at most 16"));
  }
  EXPECT_TRUE(sessions.authenticate(tokens[3]).ok());
  EXPECT_TRUE(sessions.authenticate(bobs).ok());
}

TEST_F(Sessions, TheOldestOfAllEndsWhenThereAreTooMany) {
  const std::string oldest = log_in("k-bob");
  for (size_t i = 0; i < ConsoleSessions::kSessionsMax; ++i) {
    const std::string name = std::to_string(i);
    keys["k-" + name] = name;
    ASSERT_TRUE(sessions.login("k-" + name).ok());
  }
  EXPECT_EQ(sessions.size(), ConsoleSessions::kSessionsMax);
  const Error why = sessions.authenticate(oldest).error();
  EXPECT_EQ(why.reason, "console_session_displaced");
  EXPECT_THAT(why.message, HasSubstr("yours was the oldest"));
}

// Who logs in without end does not make the server forget why others were signed out.
TEST_F(Sessions, TheReasonIsRememberedForEachUser) {
  const std::string bobs = log_in("k-bob");
  for (size_t i = 0; i < ConsoleSessions::kPerUserMax; ++i) log_in("k-bob");
  const std::string first = log_in();
  for (size_t i = 0; i < 2 * ConsoleSessions::kDisplacedMax; ++i) log_in();
  EXPECT_EQ(sessions.authenticate(bobs).error().reason, "console_session_displaced");
  EXPECT_EQ(sessions.authenticate(first).error().reason, "console_session_ended");
}

TEST_F(Sessions, HoldLongKeys) {
  const std::string key(4'000, 'x');
  keys[key] = "alice";
  EXPECT_TRUE(sessions.authenticate(sessions.login(key)->token).ok());
}

}  // namespace
}  // namespace tuft::api
