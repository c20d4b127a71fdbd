#include "control/sampling/generation.h"

#include "control/sampling/sampling_controller.h"
#include "control/tests/plane.h"

namespace tuft::control {
namespace {

// The tokens and the answer that a stream's listener received.
struct Heard {
  std::vector<int32_t> tokens;
  std::optional<Result<tinker_public::SampleResponse>> end;
};

class Streams : public PlaneTest {
 protected:
  Generation& generation() { return plane().generation(); }

  Result<Generation::Number> start(const UserId& user, const std::string& name, const std::shared_ptr<Heard>& heard,
                                   bool hears_tokens = true) {
    GenerationRequest request;
    request.model = name;
    request.prompt_tokens = {1, 2, 3};
    request.params.set_max_tokens(4);
    request.topk_logprobs = 2;
    GenerationListener listener;
    if (hears_tokens) {
      listener.on_tokens = [heard](const GenerationDelta& delta) {
        heard->tokens.insert(heard->tokens.end(), delta.tokens.begin(), delta.tokens.end());
      };
    }
    listener.done = [heard](Result<tinker_public::SampleResponse> result) {
      EXPECT_FALSE(heard->end.has_value());
      heard->end = std::move(result);
    };
    return generation().start(user, std::move(request), no_trace, std::move(listener));
  }
  // Returns the number that the fake worker samples with the weights of `name`. It answers inside the call.
  int32_t sampled_from(const UserId& user, const std::string& name) {
    const auto heard = std::make_shared<Heard>();
    const auto number = start(user, name, heard);
    EXPECT_TRUE(number.ok());
    if (!heard->end || !heard->end->ok() || heard->tokens.size() != 1) return -2;
    return heard->tokens[0];
  }
  ErrorCode failure_of(const std::shared_ptr<Heard>& heard) {
    return heard->end && !heard->end->ok() ? heard->end->error().code : ErrorCode::kInternal;
  }
  std::string save(const RunId& run, int64_t seq, const std::string& name) {
    return *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, seq, name)).path;
  }
};

TEST_F(Streams, TokensComeBeforeTheAnswer) {
  boot();
  EXPECT_EQ(sampled_from(alice, model), -1);
  EXPECT_EQ(worker().calls_of("stream_sample").size(), 1U);
  EXPECT_EQ(worker().last_sample().topk_logprobs(), 2);
}

TEST_F(Streams, NewerCheckpointUnderANameAnswersWithItsOwnWeights) {
  const RunId run = boot_with_run();
  const std::string path = save(run, 1, "n");
  EXPECT_EQ(sampled_from(alice, path), 0);
  EXPECT_EQ(sampled_from(alice, path), 0);
  EXPECT_TRUE(worker().calls_of("add_sampler").empty()) << "it is in the worker since it was saved";
  (void)value<OptimStepResult>(alice, optim_step(run, alice, 2));
  EXPECT_EQ(save(run, 3, "n"), path);
  EXPECT_EQ(sampled_from(alice, path), 1);
}

TEST_F(Streams, UnknownAndForeignModelsLookTheSame) {
  const SessionId s = boot_with_session();
  const std::string path = save(create_model(s, alice), 1, "n");
  const SamplerId sampler = *try_sampler(s, alice, 5, "", path);
  EXPECT_EQ(generation().resolve(alice, path)->tinker_path, path);
  EXPECT_EQ(generation().resolve(alice, sampler.str())->tinker_path, path);
  EXPECT_EQ(sampled_from(alice, sampler.str()), 0);
  const Error unknown = generation().resolve(bob, "tinker://nobody/weights/x").error();
  EXPECT_EQ(unknown.code, ErrorCode::kNotFound);
  for (const std::string& name : {path, sampler.str(), std::string("nonsense")}) {
    EXPECT_EQ(generation().resolve(bob, name).error().message, unknown.message) << name;
    EXPECT_EQ(start(bob, name, std::make_shared<Heard>()).error().message, unknown.message) << name;
  }
}

TEST_F(Streams, AdapterThatCannotBeLoadedIsAnErrorAndNotTheBaseModel) {
  boot();
  const std::string path = save(create_model(session(alice), alice), 1, "n");
  advance(kUnusedAdapterKept + kSecond);  // the published version has left the worker
  worker().fail_next("add_sampler", data_loss("torn", "torn"));
  const auto heard = std::make_shared<Heard>();
  ASSERT_TRUE(start(alice, path, heard).ok());
  EXPECT_EQ(failure_of(heard), ErrorCode::kDataLoss);
  EXPECT_TRUE(worker().calls_of("stream_sample").empty());
}

TEST_F(Streams, WhoHasSeenTokensOfALostWorkerIsTold) {
  boot();
  worker().hold_answers(true);
  const auto sees = std::make_shared<Heard>();
  const auto waits = std::make_shared<Heard>();
  ASSERT_TRUE(start(alice, model, sees).ok());
  ASSERT_TRUE(start(alice, model, waits, /*hears_tokens=*/false).ok());
  worker().die();
  worker().hold_answers(false);
  EXPECT_EQ(failure_of(sees), ErrorCode::kUnavailable);
  EXPECT_FALSE(waits->end.has_value());
  worker().start();
  ASSERT_TRUE(waits->end.has_value());
  EXPECT_TRUE(waits->end->ok()) << "it was drawn again";
}

TEST_F(Streams, CancelEndsRunningAndWaitingStreams) {
  boot();
  const std::string path = save(create_model(session(alice), alice), 1, "n");
  worker().hold_answers(true);
  const auto running = std::make_shared<Heard>();
  const auto first = start(alice, model, running);
  const auto waiting = std::make_shared<Heard>();
  const auto second = start(alice, path, waiting);
  ASSERT_TRUE(first.ok() && second.ok());
  generation().cancel(*second);
  EXPECT_EQ(failure_of(waiting), ErrorCode::kCancelled);
  generation().cancel(*first);
  EXPECT_EQ(failure_of(running), ErrorCode::kCancelled);
  worker().answer_all();
  generation().cancel(*first);
}

TEST_F(Streams, ShutDownEndsStreams) {
  boot();
  worker().hold_answers(true);
  const auto heard = std::make_shared<Heard>();
  ASSERT_TRUE(start(alice, model, heard).ok());
  plane().shut_down();
  EXPECT_EQ(failure_of(heard), ErrorCode::kCancelled);
  EXPECT_EQ(start(alice, model, std::make_shared<Heard>()).error().code, ErrorCode::kUnavailable);
}

TEST_F(Streams, QuotaCountsStreamsWhileTheyRun) {
  config().limits.samples_in_flight_per_user_max = 1;
  boot();
  worker().hold_answers(true);
  const auto heard = std::make_shared<Heard>();
  ASSERT_TRUE(start(alice, model, heard).ok());
  EXPECT_EQ(start(alice, model, std::make_shared<Heard>()).error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(start(bob, model, std::make_shared<Heard>()).ok());
  worker().answer_all();
  worker().hold_answers(false);
  EXPECT_EQ(sampled_from(alice, model), -1);
}

TEST_F(Streams, UnusedAdapterLeavesTheWorker) {
  boot();
  const std::string path = save(create_model(session(alice), alice), 1, "n");
  EXPECT_EQ(sampled_from(alice, path), 0);
  EXPECT_EQ(worker().samplers(), 1U);
  advance(301 * kSecond);
  EXPECT_EQ(worker().samplers(), 0U);
  EXPECT_EQ(sampled_from(alice, path), 0);
}

TEST_F(Streams, ModelsAreBaseModelsAndOwnSamplerCheckpoints) {
  boot();
  const std::string path = save(create_model(session(alice), alice), 1, "n");
  const auto ids = [&](const UserId& user) {
    std::vector<std::string> found;
    const auto page = generation().models(user, {}, 100);
    for (const ListedModel& listed : page->models) found.push_back(listed.id);
    return found;
  };
  EXPECT_EQ(ids(alice), (std::vector<std::string>{model, path}));
  EXPECT_EQ(ids(bob), (std::vector<std::string>{model}));
}

TEST_F(Streams, ListOfModelsContinuesAfterACursor) {
  boot();
  const RunId run = create_model(session(alice), alice);
  std::vector<std::string> expected = {model};
  for (int i = 1; i <= 5; ++i) {
    expected.insert(expected.begin() + 1, save(run, i, "n" + std::to_string(i)));
    advance(kSecond);
  }
  for (const size_t limit : {1, 2, 5, 6, 7}) {
    std::vector<std::string> found;
    for (bool more = true; more;) {
      const auto page = generation().models(alice, found.empty() ? "" : found.back(), limit);
      ASSERT_TRUE(page.ok()) << page.error().message;
      EXPECT_LE(page->models.size(), limit);
      for (const ListedModel& listed : page->models) found.push_back(listed.id);
      more = page->has_more;
    }
    EXPECT_EQ(found, expected) << limit;
  }
  EXPECT_EQ(generation().models(bob, expected[1], 5).error().message,
            generation().models(bob, "nothing", 5).error().message);
  EXPECT_EQ(generation().listed(alice, expected[1])->owner, alice);
  EXPECT_EQ(generation().listed(alice, model)->id, model);
  EXPECT_EQ(generation().listed(bob, expected[1]).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace tuft::control
