// The critical path of a trace, and why it took its time.
#include "control/observe/explain.h"

#include <algorithm>
#include <map>
#include <utility>

#include <gmock/gmock.h>

#include "control/observe/advice.h"

namespace tuft::control {
namespace {

using telemetry_store::RunStep;
using telemetry_store::Span;
using telemetry_store::Trace;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr int kServerKind = 2;

Span span(const std::string& id, const std::string& parent, const std::string& name, Nanos start, Nanos end) {
  Span made;
  made.trace_id = "t";
  made.span_id = id;
  made.parent_id = parent;
  made.name = name;
  made.start = start * kMillisecond;
  made.duration = (end - start) * kMillisecond;
  return made;
}

Span with(Span one, const std::string& key, const std::string& value) {
  one.attributes.push_back({key, value, false});
  return one;
}

Trace trace_of(std::vector<Span> spans) {
  Trace trace;
  trace.spans = std::move(spans);
  return trace;
}

// The path as pairs of span and milliseconds.
std::vector<std::pair<std::string, Nanos>> path_of(const Trace& trace) {
  std::vector<std::pair<std::string, Nanos>> path;
  Nanos end = 0;
  for (const PathPiece& piece : critical_path(trace)) {
    EXPECT_GE(piece.start, end) << "pieces overlap, or are not in order";
    end = piece.start + piece.duration;
    path.emplace_back(trace.spans[piece.span].span_id, piece.duration / kMillisecond);
  }
  return path;
}

TEST(CriticalPath, TheChildThatEndedLastUntilItsStart) {
  const Trace trace = trace_of({span("a", "", "a", 0, 100), span("b", "a", "b", 10, 40), span("c", "a", "c", 30, 90),
                                span("d", "c", "d", 50, 60), span("e", "a", "e", 20, 35)});
  EXPECT_THAT(path_of(trace),
              ElementsAre(Pair("a", 10), Pair("b", 20), Pair("c", 20), Pair("d", 10), Pair("c", 30), Pair("a", 10)));
}

TEST(CriticalPath, ASpanEndsWithItsLastDescendant) {
  const Trace trace = trace_of({span("request", "", "POST", 0, 5), span("operation", "request", "operation", 3, 50)});
  EXPECT_THAT(path_of(trace), ElementsAre(Pair("request", 3), Pair("operation", 47)));
}

TEST(CriticalPath, SeveralRootsAndAMissingParent) {
  const Trace trace = trace_of({span("a", "", "a", 0, 10), span("b", "gone", "b", 20, 30)});
  EXPECT_THAT(path_of(trace), ElementsAre(Pair("a", 10), Pair("b", 10)));
}

TEST(CriticalPath, ClocksThatDifferAndCircles) {
  const Trace early = trace_of({span("a", "", "a", 10, 30), span("b", "a", "b", 0, 20)});
  EXPECT_THAT(path_of(early), ElementsAre(Pair("b", 10), Pair("a", 10)));
  const Trace circle = trace_of({span("a", "b", "a", 0, 10), span("b", "a", "b", 0, 10), span("c", "c", "c", 0, 4)});
  EXPECT_THAT(path_of(circle), ElementsAre(Pair("c", 4)));
  EXPECT_THAT(path_of(Trace{}), IsEmpty());
}

TEST(CriticalPath, OfADeepTraceNeedsNoStack) {
  Trace trace;
  constexpr int kDepth = 50'000;
  for (int i = 0; i < kDepth; ++i) {
    trace.spans.push_back(span(std::to_string(i), i == 0 ? "" : std::to_string(i - 1), "x", 0, 10));
  }
  EXPECT_THAT(path_of(trace), ElementsAre(Pair(std::to_string(kDepth - 1), 10)));
}

class Explained : public ::testing::Test {
 protected:
  std::map<std::string, double> kinds(const Trace& trace, const EngineWorkIn& work = {}) {
    explanation = explain(trace, critical_path(trace), work);
    std::map<std::string, double> seconds;
    double share = 0;
    for (const ExplainedPart& part : explanation.parts) {
      seconds[std::string(part_kind_name(part.kind))] = part.seconds;
      share += part.share;
      EXPECT_FALSE(part.text.empty());
      EXPECT_FALSE(part.span_id.empty());
    }
    EXPECT_NEAR(share, explanation.parts.empty() ? 0 : 1, 1e-9);
    return seconds;
  }
  Explanation explanation;
};

Span request(const std::string& name, Nanos start, Nanos end) {
  Span made = with(span("http", "", name, start, end), "http.route", "/x");
  made.kind = kServerKind;
  return made;
}

// As a forward_backward is recorded: submitted at 0, sent at 100, begun at 400, computed until 900.
Trace pass() {
  return trace_of(
      {request("POST /api/v1/forward_backward", 0, 10),
       span("operation", "http", "future_store.execute_operation", 5, 950),
       span("controller", "operation", "training_controller.run_forward_backward", 50, 940),
       span("guard", "controller", "sequence_guard.wait", 50, 80),
       with(span("call", "controller", "training_backend.forward_backward", 100, 930), "tuft.queue_seconds", "0.28"),
       with(span("worker", "call", "hf_model.forward_backward", 120, 920), "tuft.queue_seconds", "0.28"),
       span("forward", "worker", "engine.forward", 400, 600), span("backward", "worker", "engine.backward", 600, 900)});
}

TEST_F(Explained, APassThatWaited) {
  const auto parts = kinds(pass());
  EXPECT_NEAR(parts.at("forward"), 0.2, 1e-6);
  EXPECT_NEAR(parts.at("backward"), 0.32, 1e-6);  // with the worker's own 20 ms
  EXPECT_NEAR(parts.at("sequence"), 0.03, 1e-6);
  // 45 until the run's turn, 20 until the call, 280 in the worker.
  EXPECT_NEAR(parts.at("schedule"), 0.345, 1e-6);
  EXPECT_NEAR(parts.at("network"), 0.03, 1e-6);
  EXPECT_EQ(explanation.parts.front().kind, PartKind::kSchedule);
  EXPECT_THAT(explanation.summary, HasSubstr("It took 950 ms: 36 % of it waited for its turn at the worker"));
}

TEST_F(Explained, WaitingIsDividedByWhoWorkedThen) {
  std::vector<std::pair<Nanos, Nanos>> asked;
  const auto parts = kinds(pass(), [&](Nanos from, Nanos until) {
    asked.emplace_back(from / kMillisecond, until / kMillisecond);
    return EngineWork{.own_seconds = 1, .others_seconds = 3, .of_seconds = 4};
  });
  EXPECT_NEAR(parts.at("queue_own"), 0.345 / 4, 1e-6);
  EXPECT_NEAR(parts.at("queue_others"), 0.345 * 3 / 4, 1e-6);
  EXPECT_EQ(parts.count("schedule"), 0U);
  EXPECT_THAT(asked, ::testing::Contains(Pair(120, 400)));
  EXPECT_THAT(explanation.summary, HasSubstr("behind the work of other users"));
}

TEST_F(Explained, WorkExplainsNoMoreOfAWaitThanItTook) {
  const auto parts = kinds(
      pass(), [](Nanos, Nanos) { return EngineWork{.own_seconds = 0.2, .others_seconds = 0.6, .of_seconds = 8}; });
  EXPECT_NEAR(parts.at("queue_own"), 0.345 * 0.025, 1e-6);
  EXPECT_NEAR(parts.at("queue_others"), 0.345 * 0.075, 1e-6);
  EXPECT_NEAR(parts.at("schedule"), 0.345 * 0.9, 1e-6);
}

TEST_F(Explained, AnAdapterThatWasInItsPage) {
  const Trace trace = trace_of(
      {request("POST /api/v1/forward_backward", 0, 100), span("worker", "http", "hf_model.forward_backward", 0, 100),
       span("page", "worker", "adapter.page_in", 10, 80), span("pass", "worker", "engine.forward", 80, 100)});
  EXPECT_NEAR(kinds(trace).at("paging"), 0.07, 1e-6);
  EXPECT_THAT(explanation.summary, HasSubstr("70 % of it waited until its adapter was back in memory"));
}

TEST_F(Explained, NobodyWorked) {
  const auto parts = kinds(pass(), [](Nanos, Nanos) { return EngineWork{}; });
  EXPECT_NEAR(parts.at("schedule"), 0.345, 1e-6);
}

TEST_F(Explained, ASampleByItsStages) {
  const Trace trace = trace_of(
      {request("POST /api/v1/asample", 0, 4), span("operation", "http", "future_store.execute_operation", 2, 1010),
       span("controller", "operation", "sampling_controller.run_sample", 2, 1010),
       span("call", "controller", "sampling_backend.sample", 2, 1009),
       with(with(span("worker", "call", "hf_model.sample", 4, 1008), "tuft.queue_seconds", "0.1"), "tuft.output_tokens",
            "80"),
       span("thread", "worker", "engine", 4, 1008), span("wait", "thread", "SCHEDULE", 4, 104),
       with(span("prefill", "thread", "PREFILL", 104, 204), "tuft.prompt_tokens", "50"),
       with(span("decode", "thread", "DECODE", 204, 1004), "tuft.output_tokens", "80"),
       span("post", "thread", "POSTPROCESS", 1004, 1008)});
  const auto parts = kinds(trace);
  EXPECT_NEAR(parts.at("schedule"), 0.1, 1e-6);
  EXPECT_NEAR(parts.at("prefill"), 0.1, 1e-6);
  EXPECT_NEAR(parts.at("decode"), 0.8, 1e-6);
  EXPECT_THAT(explanation.summary, HasSubstr("79 % of it made tokens: 80 tokens, 100 each second"));
  EXPECT_THAT(explanation.summary, HasSubstr("read the prompt: 50 tokens"));
}

TEST_F(Explained, StoreSavesAndOnesOwnProgram) {
  const Trace trace =
      trace_of({span("mine", "", "train step", 0, 1000), span("save", "mine", "hf_model.save_state", 100, 400),
                span("redis", "mine", "redis.SET", 400, 450), span("step", "mine", "hf_model.optim_step", 500, 600)});
  const auto parts = kinds(trace);
  EXPECT_NEAR(parts.at("save"), 0.3, 1e-6);
  EXPECT_NEAR(parts.at("store"), 0.05, 1e-6);
  EXPECT_NEAR(parts.at("optimizer"), 0.1, 1e-6);
  EXPECT_NEAR(parts.at("other"), 0.55, 1e-6);
  EXPECT_THAT(explanation.summary, HasSubstr("was in train step"));
}

// A program may give its spans the names of the server's. Nobody is asked who worked meanwhile.
TEST_F(Explained, SpansOfProgramsAreTheirsWhateverTheirNames) {
  Trace trace = trace_of({with(span("wait", "", "SCHEDULE", 0, 500), "tuft.queue_seconds", "0.5"),
                          with(span("call", "", "hf_model.forward", 500, 600), "tuft.queue_seconds", "0.1"),
                          span("operation", "", "future_store.execute_operation", 600, 700),
                          span("late", "operation", "training_backend.forward", 650, 700)});
  for (Span& one : trace.spans) one.of_program = one.span_id != "operation";
  int asked = 0;
  const auto parts = kinds(trace, [&](Nanos, Nanos) {
    ++asked;
    return EngineWork{.own_seconds = 1, .others_seconds = 3, .of_seconds = 4};
  });
  EXPECT_THAT(parts, ElementsAre(Pair("other", ::testing::DoubleNear(0.65, 1e-9)),
                                 Pair("server", ::testing::DoubleNear(0.05, 1e-9))));
  EXPECT_EQ(asked, 0);
}

TEST_F(Explained, WhereItFailed) {
  Trace trace = pass();
  trace.spans.back().failed = true;
  kinds(trace);
  EXPECT_THAT(explanation.summary, HasSubstr("It failed in engine.backward."));
  kinds(Trace{});
  EXPECT_EQ(explanation.summary, "It has no duration.");
}

// Hostile values of attributes must not make nonsense of the rest.
TEST_F(Explained, AttributesThatAreNoNumbers) {
  for (const char* text : {"nan", "inf", "-1", "1e300", "text", ""}) {
    const Trace trace = trace_of({with(span("a", "", "hf_model.forward", 0, 10), "tuft.queue_seconds", text)});
    double sum = 0;
    for (const auto& [kind, seconds] : kinds(trace)) sum += seconds;
    EXPECT_NEAR(sum, 0.01, 1e-9) << text;
  }
}

TEST(InWords, OfEachSize) {
  EXPECT_EQ(in_words(75e-6), "75 us");
  EXPECT_EQ(in_words(0.38), "380 ms");
  EXPECT_EQ(in_words(1.234), "1.23 s");
  EXPECT_EQ(in_words(200), "3 min 20 s");
  EXPECT_EQ(in_words(10'000), "2.8 h");
}

RunStep step_of(double pass, double step, double wait, double save, double idle, int64_t tokens = 1000) {
  RunStep made;
  made.step = 1;
  made.tokens = tokens;
  made.pass_seconds = pass;
  made.step_seconds = step;
  made.wait_seconds = wait;
  made.save_seconds = save;
  made.idle_seconds = idle;
  return made;
}

std::vector<std::string> advice(const RunStep& step, int count = 10, int64_t pass_tokens = 512) {
  return advice_for(time_of(std::vector<RunStep>(static_cast<size_t>(count), step)), pass_tokens);
}

TEST(Advice, TheLargestLossFirst) {
  EXPECT_THAT(advice(step_of(0.4, 0, 0, 0, 0.6)),
              ElementsAre("60 % of the time no request was waiting: send the next batch before fetching the result."));
  EXPECT_THAT(advice(step_of(0.2, 0, 0.5, 0.3, 0)), ElementsAre(HasSubstr("50 % of the time its operations waited"),
                                                                HasSubstr("30 % of the time went into saving")));
  EXPECT_THAT(advice(step_of(0.1, 0.9, 0, 0, 0)), ElementsAre(HasSubstr("90 % of the time went into optimizer steps")));
  EXPECT_THAT(advice(step_of(1, 0, 0, 0, 0)), ElementsAre(HasSubstr("100 % of the time the engine computed")));
  EXPECT_THAT(advice(step_of(1, 0, 0, 0, 0, 64)),
              ElementsAre(HasSubstr("A step has 64 tokens, and one pass has room for 512")));
}

TEST(Advice, NoneFromTooLittle) {
  EXPECT_THAT(advice(step_of(0, 0, 0, 0, 1), 2), IsEmpty());
  EXPECT_THAT(advice(step_of(0, 0, 0, 0, 0)), IsEmpty());
}

}  // namespace
}  // namespace tuft::control
