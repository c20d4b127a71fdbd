// Tests of the search for sessions.
#include <string>
#include <vector>

#include "control/tests/plane.h"

namespace tuft::control {
namespace {

class SessionSearch : public PlaneTest {
 protected:
  SessionId made(const UserId& user, const std::string& name, std::map<std::string, std::string> metadata = {},
                 const std::string& project = "") {
    clock().advance(kSecond);
    CreateSession request;
    request.display_name = name;
    request.user_metadata = std::move(metadata);
    request.project_id = project;
    return *plane().create_session(user, request);
  }
  std::vector<SessionId> found(const SessionQuery& query, const UserId& user) {
    std::vector<SessionId> ids;
    for (const SessionFound& each : plane().catalog().search_sessions(user, query).sessions) ids.push_back(each.id);
    return ids;
  }
  std::vector<SessionId> found(const SessionQuery& query) { return found(query, alice); }
  using Ids = std::vector<SessionId>;
};

TEST_F(SessionSearch, EveryPartMustMatch) {
  boot();
  const SessionId a = made(alice, "Nightly math run", {{"k", "v"}, {"x", "1"}}, "p");
  const SessionId b = made(alice, "nightly code", {{"k", "w"}});
  const SessionId foreign = made(bob, "nightly", {{"k", "v"}}, "p");
  EXPECT_EQ(found({}), (Ids{b, a}));
  EXPECT_EQ(found({}, bob), Ids{foreign});
  EXPECT_EQ(found({.name_words = {"nightly"}}), (Ids{b, a}));
  EXPECT_EQ(found({.name_words = {"run", "night"}}), Ids{a});
  EXPECT_EQ(found({.session_id = b.str()}), Ids{b});
  EXPECT_EQ(found({.session_id = b.str(), .name_words = {"math"}}), (Ids{b, a})) << "either one matches";
  EXPECT_TRUE(found({.session_id = foreign.str()}).empty());
  EXPECT_EQ(found({.projects = {"p"}}), Ids{a});
  EXPECT_EQ(found({.projects = {"q", "default"}}), Ids{b});
  EXPECT_EQ(found({.user_metadata = {{"k", "v"}}}), Ids{a});
  EXPECT_TRUE(found({.user_metadata = {{"k", "v"}, {"x", "2"}}}).empty());
  EXPECT_TRUE(found({.projects = {"p"}, .user_metadata = {{"k", "w"}}}).empty());
}

TEST_F(SessionSearch, EndedSessionsAreFoundByHowTheyEnded) {
  boot();
  const SessionId silent = made(alice, "silent");
  advance((config().limits.session_idle_seconds + 1) * kSecond);
  const SessionId good = made(alice, "good", {{"k", "v"}});
  const SessionId bad = made(alice, "bad");
  const SessionId open = made(alice, "open");
  ASSERT_TRUE(plane().end_session(alice, good, {}).ok());
  ASSERT_TRUE(plane().end_session(alice, bad, {FinishReason::kErrored, "no data"}).ok());
  EXPECT_EQ(found({}), (Ids{open, bad, good, silent}));
  EXPECT_EQ(found({.states = {{SessionState::kActive}}}), Ids{open});
  EXPECT_EQ(found({.states = {{SessionState::kFinished}}}), (Ids{bad, good}));
  EXPECT_EQ(found({.states = {{SessionState::kFinished, {FinishReason::kErrored}}, {SessionState::kActive}}}),
            (Ids{open, bad}));
  EXPECT_TRUE(found({.states = {{SessionState::kFailed}}}).empty());
  EXPECT_EQ(found({.user_metadata = {{"k", "v"}}}), Ids{good});
  const auto cancelled = plane().catalog().search_sessions(alice, {.states = {{SessionState::kCancelled}}});
  ASSERT_EQ(cancelled.sessions.size(), 1U);
  EXPECT_NE(cancelled.sessions[0].ending.find("nothing was heard of it"), std::string::npos);
  const auto errored = plane().catalog().search_sessions(alice, {.name_words = {"bad"}});
  ASSERT_EQ(errored.sessions.size(), 1U);
  EXPECT_EQ(errored.sessions[0].finish.detail, "no data");
  EXPECT_TRUE(found({}, bob).empty());
}

TEST_F(SessionSearch, PagesFollowTheCursorThroughAllSessions) {
  boot();
  Ids all;
  for (int i = 0; i < 150; ++i) {
    all.insert(all.begin(), made(alice, "s"));
    if (i % 3 == 0) {
      ASSERT_TRUE(plane().end_session(alice, all.front(), {}).ok());
    }
  }
  Ids collected;
  SessionQuery query{.limit = 40};
  for (bool more = true; more;) {
    const SessionsFound page = plane().catalog().search_sessions(alice, query);
    more = page.has_more;
    EXPECT_EQ(page.sessions.size(), more ? 40U : 30U);
    for (const SessionFound& each : page.sessions) collected.push_back(each.id);
    query.after.emplace(page.sessions.back().created_at, page.sessions.back().id);
  }
  EXPECT_EQ(collected, all);
  query.after->first = "1970";
  EXPECT_TRUE(found(query).empty());
}

TEST_F(SessionSearch, APageWithMuchMetadataEndsEarly) {
  boot();
  for (int i = 0; i < 40; ++i) made(alice, "s", {{"note", std::string(60'000, 'x')}});
  SessionQuery query;
  size_t count = 0;
  for (bool more = true; more;) {
    const SessionsFound page = plane().catalog().search_sessions(alice, query);
    EXPECT_LE(page.sessions.size(), 20U);
    more = page.has_more;
    count += page.sessions.size();
    query.after.emplace(page.sessions.back().created_at, page.sessions.back().id);
  }
  EXPECT_EQ(count, 40U);
}

TEST_F(SessionSearch, SessionsShowTheStorageOfTheirCheckpoints) {
  const auto [s, run] = boot_with_session_and_run();
  value<SaveWeightsResult>(alice, save(run, alice, 1, "a"));
  value<SaveWeightsResult>(alice, save(run, alice, 2, "b"));
  value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 3, "", 0));  // ephemeral
  const RunId other = create_model(s, alice, 1);
  value<SaveWeightsResult>(alice, save(other, alice, 1, "c"));
  const auto shown = [&, id = s] {
    return plane().catalog().search_sessions(alice, {.session_id = id.str()}).sessions.at(0);
  };
  EXPECT_EQ(shown().checkpoints, 3);
  EXPECT_EQ(shown().checkpoint_bytes, 300);
  ASSERT_TRUE(plane().end_session(alice, s, {}).ok());
  EXPECT_EQ(shown().state, SessionState::kFinished);
  EXPECT_EQ(shown().checkpoint_bytes, 300);
}

}  // namespace
}  // namespace tuft::control
