// The picture of `tuft top`, from answers of the observe API.
#include "app/tuft/terminal/top_view.h"

#include <cstdlib>
#include <ctime>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tuft::terminal {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// Answers by the path and, for series, by the function or the metric.
class FakeApi final : public Api {
 public:
  Result<Json> get(const std::string& target) override {
    asked.push_back(target);
    for (const auto& [beginning, answer] : answers) {
      if (target.starts_with("/api/v1/observe/" + beginning)) return answer;
    }
    return not_found("no such endpoint");
  }
  std::vector<std::pair<std::string, Result<Json>>> answers;
  std::vector<std::string> asked;
};

Json series(const Json& values) {
  Json answer = {{"start", 0}, {"step", 60e6}, {"series", Json::array()}};
  for (const auto& [key, value] : values.items())
    answer["series"].push_back({{"key", key}, {"points", {nullptr, value}}});
  return answer;
}

Json by_model(const Json& values) {
  Json answer = {{"series", Json::array()}};
  for (const auto& [model, value] : values.items()) {
    answer["series"].push_back({{"labels", {{"base_model", model}}}, {"points", {value, nullptr, value}}});
  }
  return answer;
}

constexpr double kNow = 1'764'043'927'000'000;

Json user_row(const char* name, int runs, double share) {
  return {{"user", name},
          {"sessions", 1},
          {"runs", runs},
          {"samplers", 1},
          {"pending", 3},
          {"checkpoint_bytes", 5e6},
          {"tokens", {{"train", 1000}, {"input", 200}, {"output", 34}}},
          {"engine_share", share}};
}

void fill(FakeApi& api) {
  api.answers = {{"whoami", Json{{"user", "alice"}, {"operator", true}}},
                 {"overview", Json{{"server_time", kNow},
                                   {"version", "0.4.0"},
                                   {"started", kNow - 8100e6},
                                   {"ready", true},
                                   {"sessions", 4},
                                   {"runs", 3},
                                   {"samplers", 2},
                                   {"pending", 17},
                                   {"users_active", 3},
                                   {"models",
                                    {{{"base_model", "tiny"},
                                      {"state", "ready"},
                                      {"incarnation", 1},
                                      {"queue", {{"training", 0}, {"sampling", 3}}},
                                      {"last_step", kNow - 12e6},
                                      {"why_waiting", nullptr}},
                                     {{"base_model", "large"},
                                      {"state", "starting"},
                                      {"incarnation", 2},
                                      {"queue", {{"training", 7}, {"sampling", 0}}},
                                      {"last_step", nullptr},
                                      {"why_waiting", "the worker reads the weights"}}}}}},
                 {"system", Json{{"telemetry",
                                  {{"store",
                                    {{"spans", 12'345},
                                     {"logs", 410},
                                     {"series", 310},
                                     {"disk_bytes", 210e6},
                                     {"disk_bytes_max", 1'073'741'824},
                                     {"dropped_records", 0},
                                     {"problem", ""}}}}}}},
                 {"traces/series?fn=count&by=operation", series({{"forward_backward", 726}, {"sample", 210}})},
                 {"traces/series?fn=errors&by=operation", series({{"sample", 2}})},
                 {"traces/series?fn=p50&by=operation", series({{"forward_backward", 13'000}, {"sample", 420'000}})},
                 {"traces/series?fn=p95&by=operation", series({{"forward_backward", 40'000}, {"sample", 1'900'000}})},
                 {"metrics/query?name=tuft.training.tokens", by_model({{"tiny", 12'300.0}})},
                 {"metrics/query?name=tuft.sampling.tokens", by_model({{"tiny", 240}})},
                 {"metrics/query?name=tuft.scheduler.requests&fn=last&by=base_model&where=state%3arunning",
                  by_model({{"tiny", 4}})},
                 {"metrics/query?name=tuft.scheduler.requests&fn=last&by=base_model&where=state%3awaiting",
                  by_model({{"tiny", 0}})},
                 {"traces/series?fn=count&by=name", series({{"oai.proxy_inference", 6}})},
                 {"traces/series?fn=p50&by=name", series({{"oai.proxy_inference", 80'000}})},
                 {"traces/series?fn=p95&by=name", series({{"oai.proxy_inference", 90'000}})},
                 {"tenants", Json{{"tenants", {user_row("alice", 1, 0.2), user_row("bob", 2, 0.7)}}}},
                 {"sessions", Json{{"sessions", Json::array()}}},
                 {"runs", Json{{"runs",
                                {{{"run", "s-1:train:0"},
                                  {"user", "bob"},
                                  {"base_model", "tiny"},
                                  {"steps", 40},
                                  {"loss", 1.25},
                                  {"tokens_per_second", 1234},
                                  {"last_active", kNow - 2e6},
                                  {"corrupted", false}}}}}}};
}

class Top : public ::testing::Test {
 protected:
  Top() {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
    fill(api_);
  }
  std::string picture(const TopState& state = {}, TopFrame frame = {}) {
    return plain_text(top_lines(read_top(api_, state.view, {}), state, frame, "http://127.0.0.1:10610"));
  }
  FakeApi api_;
};

TEST_F(Top, PictureOfAnOperatorFitsTheClassicTerminal) {
  const std::string text = picture();
  for (const Line& line : top_lines(read_top(api_, {}, {}), {}, {}, "http://127.0.0.1:10610")) {
    EXPECT_LE(columns_of(line.plain()), 80u) << line.plain();
  }
  EXPECT_EQ(text, R"(tuft 0.4.0  http://127.0.0.1:10610  ready  up 2h15m   alice (operator)  04:12:07
sessions 4  runs 3  samplers 2  unfinished operations 17  active users 3
last minute  tokens/s 12.3k trained, 240 sampled  15.7 operations/s  2 errors
telemetry  spans 12.3k  logs 410  series 310  disk 210 MB of 1.07 GB  lost 0

MODEL  STATE     QUEUED T / S  RUN / WAIT  WHY WAITING
tiny   ready            0 / 3       4 / 0
large  starting         7 / 0       - / -  the worker reads the weights

 1 Operations  2 Users  3 Sessions  4 Runs
OPERATIONv           PER SECOND     P50     P95  ERRORS
completion (OpenAI)        0.10   80 ms   90 ms       0
forward_backward           12.1   13 ms   40 ms       0
sample                     3.50  420 ms  1.90 s       2









tab: view   arrows: sort and scroll   r: reverse   q: quit
)");
}

TEST_F(Top, AWideTerminalTellsTheAgeOfTheNewestOptimizerStep) {
  const std::string text = picture({}, {.columns = 200});
  EXPECT_THAT(text, HasSubstr("OPTIMIZER STEP"));
  const size_t tiny = text.find("\ntiny ");
  ASSERT_NE(tiny, std::string::npos);
  EXPECT_THAT(text.substr(tiny, text.find('\n', tiny + 1) - tiny), HasSubstr(" 12 s"));
}

TEST_F(Top, PictureGrowsAndShrinksWithTheTerminal) {
  for (const size_t columns : {20, 40, 80, 132, 300}) {
    for (const size_t rows : {3, 10, 24, 60}) {
      const Lines lines =
          top_lines(read_top(api_, {}, {}), {}, {.columns = columns, .rows = rows}, "http://127.0.0.1:10610");
      EXPECT_EQ(lines.size(), rows);
      for (const Line& line : lines) EXPECT_LE(columns_of(line.plain(columns)), columns);
    }
  }
}

TEST_F(Top, UsersAreSortedByTheChosenColumn) {
  TopState state{.view = TopView::kUsers};
  std::string text = picture(state);
  EXPECT_LT(text.find("alice  "), text.find("bob  ")) << text;
  press(state, "right", 2);
  press(state, "right", 2);
  text = picture(state);
  EXPECT_THAT(text, HasSubstr("RUNSv"));
  EXPECT_LT(text.find("bob  "), text.find("alice  ")) << text;
  press(state, "r", 2);
  text = picture(state);
  EXPECT_LT(text.find("alice  "), text.find("bob  ")) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("1234"), HasSubstr("70 %"), HasSubstr("5 MB")));
}

TEST_F(Top, KeysChangeTheView) {
  TopState state;
  EXPECT_TRUE(press(state, "tab", 0));
  EXPECT_EQ(state.view, TopView::kUsers);
  EXPECT_TRUE(press(state, "backtab", 0));
  EXPECT_TRUE(press(state, "backtab", 0));
  EXPECT_EQ(state.view, TopView::kRuns);
  EXPECT_THAT(picture(state), AllOf(HasSubstr("s-1:train:0"), HasSubstr("1.25"), HasSubstr("2 s")));
  EXPECT_TRUE(press(state, "3", 0));
  EXPECT_EQ(state.view, TopView::kSessions);
  EXPECT_THAT(picture(state), HasSubstr("no session"));
  EXPECT_FALSE(press(state, "x", 0));
}

TEST_F(Top, ScrollingEndsAtTheLastRow) {
  TopState state{.view = TopView::kUsers};
  for (int i = 0; i < 50; ++i) press(state, i % 2 == 0 ? "down" : "pagedown", 2);
  EXPECT_EQ(state.scrolled, 1u);
  for (const char* key : {"up", "up", "pageup"}) press(state, key, 2);
  EXPECT_EQ(state.scrolled, 0u);
}

TEST_F(Top, AsksOnlyForWhatItShows) {
  read_top(api_, TopView::kOperations, {});
  EXPECT_THAT(api_.asked, Not(Contains(HasSubstr("/tenants"))));
  api_.asked.clear();
  api_.answers[0].second = Json{{"user", "bob"}, {"operator", false}};
  read_top(api_, TopView::kUsers, {});
  EXPECT_THAT(api_.asked, Contains(HasSubstr("/tenants")));
  EXPECT_THAT(api_.asked, Not(Contains(HasSubstr("/metrics/"))));
}

TEST_F(Top, UserSeesDashesWhereTheServerRefuses) {
  api_.answers.erase(api_.answers.begin() + 2, api_.answers.end());
  const std::string text = picture();
  EXPECT_THAT(text, AllOf(HasSubstr("tiny"), HasSubstr("- / -"), HasSubstr("telemetry  not stored")));
}

TEST_F(Top, HowMuchIsStoredIsForOperators) {
  api_.answers.insert(api_.answers.begin(), {"whoami", Json{{"user", "bob"}, {"operator", false}}});
  EXPECT_THAT(picture(), AllOf(HasSubstr("kept in memory, at most 1.07 GB"), Not(HasSubstr("spans"))));
}

TEST_F(Top, ServerThatIsGoneLeavesTheFormerPictureWithItsProblem) {
  const TopData before = read_top(api_, {}, {});
  api_.answers.insert(api_.answers.begin(), {"whoami", unavailable("cannot reach it")});
  const TopData after = read_top(api_, {}, before);
  EXPECT_EQ(after.problem, "cannot reach it");
  EXPECT_FALSE(after.is_final);
  EXPECT_THAT(plain_text(top_lines(after, {}, {}, "")), AllOf(HasSubstr("cannot reach it"), HasSubstr("tiny")));
}

TEST_F(Top, RefusedKeyIsFinal) {
  api_.answers.insert(api_.answers.begin(), {"whoami", Error{ErrorCode::kUnauthenticated, "no", ""}});
  EXPECT_TRUE(read_top(api_, {}, {}).is_final);
}

TEST_F(Top, OnePictureHasAllRowsAndNoHelp) {
  Json operations = Json::object();
  for (int i = 0; i < 40; ++i) operations["operation_" + std::to_string(i)] = i;
  api_.answers[3].second = series(operations);
  const std::string text = picture({}, {.columns = 80, .rows = 24, .is_live = false});
  EXPECT_THAT(text, AllOf(HasSubstr("operation_39"), HasSubstr("operation_0"), Not(HasSubstr("q: quit"))));
}

TEST_F(Top, HostileNamesDoNotReachTheTerminal) {
  api_.answers.insert(api_.answers.begin(), {"whoami", Json{{"user", "a\x1b[2J"}, {"operator", false}}});
  api_.answers[4].second = series({{"x\x1b]0;title\x07", 1}});
  for (const Line& line : top_lines(read_top(api_, {}, {}), {}, {}, "")) {
    EXPECT_EQ(line.plain().find('\x1b'), std::string::npos);
    EXPECT_THAT(line.styled(), Not(HasSubstr("\x1b]")));
    EXPECT_THAT(line.styled(), Not(HasSubstr("\x1b[2J")));
  }
}

TEST_F(Top, EmptyDataIsDrawn) {
  for (size_t view = 0; view < kTopViews; ++view) {
    EXPECT_EQ(top_lines({}, {.view = static_cast<TopView>(view)}, {}, "").size(), 24u);
  }
}

}  // namespace
}  // namespace tuft::terminal
