// Tests that a run keeps its optimizer, and that nothing trains it with another one.
#include <gmock/gmock.h>

#include "control/tests/plane.h"

namespace tuft::control {
namespace {

using ::testing::HasSubstr;

class RunOptimizer : public PlaneTest {
 protected:
  RunId create(Optimizer optimizer, int64_t seq = 0) {
    CreateModel request = create_request(session(alice), seq);
    request.optimizer = optimizer;
    return value<CreateModelResult>(alice, plane().create_model(alice, request, no_trace)->request).run;
  }
  RequestId step(const RunId& run, int64_t seq, Optimizer optimizer, double learning_rate = 0.01) {
    OptimStep request{.run = run, .seq_id = seq};
    request.optimizer = optimizer;
    request.learning_rate = learning_rate;
    return plane().optim_step(alice, request, no_trace)->request;
  }
  Result<Submitted> create_by_load(const std::string& path, bool with_state, std::optional<Optimizer> optimizer) {
    LoadWeights request;
    request.path = path;
    request.optimizer = with_state;
    request.create = NewModel{session(alice), 0, "", {}, optimizer};
    return plane().load_weights(alice, request, no_trace);
  }
  Optimizer optimizer_of(const RunId& run) { return plane().get_info(alice, run)->optimizer; }
};

TEST_F(RunOptimizer, IsThatOfItsCreationAndReachesTheWorker) {
  boot();
  const RunId adamw = create(Optimizer::kAdamW);
  EXPECT_EQ(worker().last_create().optimizer(), "adamw");
  EXPECT_EQ(optimizer_of(adamw), Optimizer::kAdamW);
  const RunId dimuon = create(Optimizer::kDimuon);
  EXPECT_EQ(worker().last_create().optimizer(), "dimuon");
  EXPECT_EQ(optimizer_of(dimuon), Optimizer::kDimuon);
  value<OptimStepResult>(alice, step(dimuon, 1, Optimizer::kDimuon));
  value<OptimStepResult>(alice, step(adamw, 1, Optimizer::kAdamW));
}

TEST_F(RunOptimizer, ParametersOfAnotherOptimizerAreRefusedByName) {
  boot();
  const RunId adamw = create(Optimizer::kAdamW);
  const RunId dimuon = create(Optimizer::kDimuon);
  const Error first = failure(alice, step(adamw, 1, Optimizer::kDimuon));
  EXPECT_EQ(first.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(first.message, HasSubstr("has the parameters of dimuon, and this model was created with adamw"));
  EXPECT_THAT(first.message, HasSubstr("adam_params"));
  const Error second = failure(alice, step(dimuon, 1, Optimizer::kAdamW));
  EXPECT_THAT(second.message, HasSubstr("has the parameters of adamw, and this model was created with dimuon"));
  EXPECT_TRUE(worker().calls_of("optim_step").empty());
  value<OptimStepResult>(alice, step(dimuon, 2, Optimizer::kDimuon));  // the number was used up
}

TEST_F(RunOptimizer, ParametersOutOfRangeAreNamed) {
  boot();
  const RunId run = create(Optimizer::kDimuon);
  EXPECT_THAT(failure(alice, step(run, 1, Optimizer::kDimuon, -1)).message,
              HasSubstr("optimizer_params.learning_rate"));
  OptimStep request{.run = run, .seq_id = 2};
  request.optimizer = Optimizer::kDimuon;
  request.beta1 = 1;
  EXPECT_THAT(failure(alice, plane().optim_step(alice, request, no_trace)->request).message,
              HasSubstr("optimizer_params.beta1"));
}

TEST_F(RunOptimizer, LoadsOfAnotherOptimizersStateAreRefusedByName) {
  boot();
  const RunId adamw = create(Optimizer::kAdamW);
  const RunId dimuon = create(Optimizer::kDimuon);
  const std::string path = value<SaveWeightsResult>(alice, save(dimuon, alice, 1, "x")).path;
  const Error error = failure(alice, load(adamw, alice, 1, path, true));
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("has the optimizer state of dimuon, and this model trains with adamw"));
  EXPECT_TRUE(worker().calls_of("load_state").empty());
  value<LoadWeightsResult>(alice, load(adamw, alice, 2, path, false));
  EXPECT_EQ(optimizer_of(adamw), Optimizer::kAdamW);
  value<LoadWeightsResult>(alice, load(dimuon, alice, 2, path, true));
}

TEST_F(RunOptimizer, AModelFromACheckpointHasTheOptimizerOfTheState) {
  boot();
  const std::string path = value<SaveWeightsResult>(alice, save(create(Optimizer::kDimuon), alice, 1, "x")).path;
  const auto made = [&](bool with_state, std::optional<Optimizer> optimizer) {
    const auto submitted = create_by_load(path, with_state, optimizer);
    return optimizer_of(value<LoadWeightsResult>(alice, submitted->request).run);
  };
  EXPECT_EQ(made(true, std::nullopt), Optimizer::kDimuon);
  EXPECT_EQ(made(true, Optimizer::kDimuon), Optimizer::kDimuon);
  EXPECT_EQ(made(false, std::nullopt), Optimizer::kAdamW);
  EXPECT_EQ(made(false, Optimizer::kDimuon), Optimizer::kDimuon);
  const auto refused = create_by_load(path, true, Optimizer::kAdamW);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("has the optimizer state of dimuon"));
}

TEST_F(RunOptimizer, IsRestoredWithTheServer) {
  keep_state();
  boot();
  const RunId run = create(Optimizer::kDimuon);
  value<SaveWeightsResult>(alice, save(run, alice, 1, "x"));
  crash_and_boot();
  EXPECT_EQ(optimizer_of(run), Optimizer::kDimuon);
  EXPECT_EQ(worker().last_create().optimizer(), "dimuon");
  EXPECT_THAT(failure(alice, step(run, 2, Optimizer::kAdamW)).message, HasSubstr("created with dimuon"));
  value<OptimStepResult>(alice, step(run, 3, Optimizer::kDimuon));
}

}  // namespace
}  // namespace tuft::control
