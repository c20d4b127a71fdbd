// Tests of what a user sees of their own objects and of those of others.
#include "control/views/catalog.h"

#include <algorithm>
#include <future>

#include "control/checkpoints/checkpoint_actions.h"
#include "control/tests/plane.h"

namespace tuft::control {
namespace {

class Listed : public PlaneTest {
 protected:
  Catalog& catalog() { return plane().catalog(); }
  std::string saved(const RunId& run, int64_t seq, const std::string& name) {
    clock().advance(kSecond);
    return value<SaveWeightsResult>(alice, save(run, alice, seq, name)).path;
  }
  std::vector<RunId> runs(const UserId& user, const std::string& project = "") {
    std::vector<RunId> ids;
    for (const TrainingRunView& view : catalog().training_runs(user, {0, 100}, project).items) ids.push_back(view.run);
    return ids;
  }
};

TEST_F(Listed, SessionsAreNewestFirstAndInPages) {
  boot();
  std::vector<SessionId> made;
  for (int i = 0; i < 3; ++i) {
    made.push_back(session(alice));
    clock().advance(kSecond);
  }
  session(bob);
  const Page<SessionId> all = catalog().sessions(alice, {0, 20});
  EXPECT_EQ(all.items, (std::vector<SessionId>{made[2], made[1], made[0]}));
  EXPECT_EQ(all.total, 3);
  EXPECT_EQ(catalog().sessions(alice, {1, 1}).items, std::vector<SessionId>{made[1]});
  EXPECT_TRUE(catalog().sessions(alice, {3, 20}).items.empty());
  EXPECT_TRUE(catalog().sessions(alice, {1LL << 62, 1LL << 62}).items.empty());
}

TEST_F(Listed, StorageIsReportedByProject) {
  const auto [s, run] = boot_with_session_and_run();
  saved(run, 1, "a");
  saved(run, 2, "b");
  const RunId other = create_model(alice);
  saved(other, 1, "c");
  ASSERT_TRUE(catalog().set_project(alice, s, "p").ok());
  const auto all = catalog().stored(alice, "");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].project, "");
  EXPECT_EQ(all[0].checkpoints, 1);
  EXPECT_EQ(all[1].project, "p");
  EXPECT_EQ(all[1].checkpoints, 2);
  EXPECT_EQ(all[1].size_bytes, 200);
  EXPECT_EQ(catalog().stored(alice, "p").size(), 1U);
  EXPECT_TRUE(catalog().stored(bob, "").empty());
}

TEST_F(Listed, SessionListsItsPartsToItsOwnerOnly) {
  const SessionId mine = boot_with_session();
  for (const int64_t seq : {10, 2}) {
    create_model(mine, alice, seq);
    ASSERT_TRUE(try_sampler(mine, alice, seq, model).ok());
  }
  const Result<SessionView> view = catalog().session(alice, mine);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->runs, (std::vector<RunId>{RunId(mine.str() + ":train:2"), RunId(mine.str() + ":train:10")}));
  EXPECT_EQ(view->samplers,
            (std::vector<SamplerId>{SamplerId(mine.str() + ":sample:2"), SamplerId(mine.str() + ":sample:10")}));
  const Error foreign = catalog().session(bob, mine).error();
  EXPECT_EQ(foreign.code, ErrorCode::kNotFound);
  EXPECT_EQ(foreign.message, catalog().session(bob, SessionId("unknown")).error().message);
}

TEST_F(Listed, SessionShowsItsDisplayNameAlsoAfterARestart) {
  keep_state();
  boot();
  CreateSession request;
  request.display_name = "nightly";
  const SessionId named = *plane().create_session(alice, request);
  EXPECT_EQ(catalog().session(alice, named)->display_name, "nightly");
  ASSERT_TRUE(durable().ok());
  crash_and_boot();
  EXPECT_EQ(catalog().session(alice, named)->display_name, "nightly");
  ASSERT_TRUE(catalog().set_project(alice, named, "p").ok());
  ASSERT_TRUE(durable().ok());
  crash_and_boot();
  EXPECT_EQ(catalog().session(alice, named)->display_name, "nightly");
}

TEST_F(Listed, CheckpointsShowTheirOwnMetadataWhichASaveReplaces) {
  keep_state();
  const RunId run = boot_with_run();
  const auto saved_with = [&](int64_t seq, std::map<std::string, std::string> metadata) {
    const SaveWeights request{run, seq, "a", std::nullopt, true, std::move(metadata)};
    return value<SaveWeightsResult>(alice, plane().save_weights(alice, request, no_trace)->request).path;
  };
  const auto shown = [&] { return catalog().checkpoints(alice, {0, 1}, control::Listed::kAll).items.at(0); };
  const std::string path = saved_with(1, {{"note", "n"}});
  EXPECT_EQ(shown().user_metadata, (std::map<std::string, std::string>{{"note", "n"}}));
  ASSERT_TRUE(set_public(alice, path, true).ok());
  ASSERT_TRUE(durable().ok());
  crash_and_boot();
  EXPECT_EQ(shown().user_metadata, (std::map<std::string, std::string>{{"note", "n"}}));
  const int64_t size = shown().size_bytes;
  saved_with(2, {{"step", "2"}, {"more", std::string(1000, 'x')}});
  EXPECT_EQ(shown().user_metadata.size(), 2U);
  EXPECT_GT(shown().size_bytes, size + 1000) << "metadata counts as bytes of the checkpoint";
  saved_with(3, {});
  EXPECT_TRUE(shown().user_metadata.empty());

  const auto refusal = [&](int64_t seq, std::map<std::string, std::string> metadata) {
    const SaveWeightsForSampler request{run, seq, "s", std::nullopt, std::nullopt, std::move(metadata)};
    return failure(alice, plane().save_weights_for_sampler(alice, request, no_trace)->request);
  };
  EXPECT_EQ(refusal(4, {{"k", std::string(9000, 'x')}}).reason, "metadata_too_large");
  std::map<std::string, std::string> many;
  for (int i = 0; i < 65; ++i) many[std::to_string(i)] = "";
  EXPECT_EQ(refusal(5, many).reason, "metadata_too_large");
}

TEST_F(Listed, RunsAreMostRecentlyUsedFirst) {
  const RunId first = boot_with_run();
  clock().advance(kSecond);
  const RunId second = create_model(alice);
  EXPECT_EQ(runs(alice), (std::vector<RunId>{second, first}));
  clock().advance(kSecond);
  ASSERT_TRUE(wait(alice, optim_step(first, alice, 1)).ok());
  EXPECT_EQ(runs(alice), (std::vector<RunId>{first, second}));
  EXPECT_TRUE(runs(bob).empty());
  EXPECT_EQ(catalog().training_runs(alice, {1, 1}, "").items.at(0).run, second);
  EXPECT_EQ(catalog().training_runs(alice, {1, 1}, "").total, 2);
}

TEST_F(Listed, RunShowsItsNewestCheckpoints) {
  const RunId run = boot_with_run();
  saved(run, 1, "b");
  saved(run, 2, "a");
  clock().advance(kSecond);
  ASSERT_TRUE(wait(alice, save_for_sampler(run, alice, 3, "s")).ok());
  ASSERT_TRUE(wait(alice, save_for_sampler(run, alice, 4, "", 7)).ok());  // ephemeral: in no list
  const Result<TrainingRunView> view = catalog().training_run(alice, run, Scope::kOwned);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->owner, alice);
  EXPECT_EQ(view->base_model, model);
  EXPECT_EQ(view->lora_rank, 8);
  EXPECT_FALSE(view->corrupted);
  EXPECT_EQ(view->last_checkpoint->checkpoint_id, "weights/a");
  EXPECT_EQ(view->last_sampler_checkpoint->checkpoint_id, "sampler_weights/s");
  const auto of_run = catalog().checkpoints_of(alice, run, {0, 100}, control::Listed::kAll);
  ASSERT_TRUE(of_run.ok());
  ASSERT_EQ(of_run->total, 3);
  EXPECT_EQ(of_run->items[0].checkpoint_id, "weights/b");
  EXPECT_EQ(of_run->items[2].kind, CheckpointKind::kSampler);
  EXPECT_EQ(catalog().checkpoints(alice, {0, 1}, control::Listed::kAll).items.at(0).checkpoint_id, "sampler_weights/s");
  EXPECT_EQ(catalog().checkpoints_of(bob, run, {0, 100}, control::Listed::kAll).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(catalog().checkpoints(bob, {0, 100}, control::Listed::kAll).total, 0);
}

TEST_F(Listed, UnloadedRunIsListedWhileItHasCheckpoints) {
  const SessionId mine = boot_with_session();
  CreateModel request = create_request(mine);
  request.user_metadata = {{"renderer_name", "r"}};
  const auto created = plane().create_model(alice, request, no_trace);
  ASSERT_TRUE(created.ok());
  const RunId run = value<CreateModelResult>(alice, created->request).run;
  const RunId empty = create_model(mine, alice, 1);
  saved(run, 1, "a");
  for (const RunId& each : {run, empty}) {
    const auto unloaded = plane().unload_model(alice, each, no_trace);
    ASSERT_TRUE(unloaded.ok());
    ASSERT_TRUE(wait(alice, unloaded->request).ok());
  }
  EXPECT_EQ(runs(alice), std::vector<RunId>{run});
  const Result<TrainingRunView> view = catalog().training_run(alice, run, Scope::kOwned);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->user_metadata, request.user_metadata);
  EXPECT_EQ(view->last_request_time, view->last_checkpoint->created_at);
}

TEST_F(Listed, LoadedAndUnloadedRunsMakeOneList) {
  const SessionId mine = boot_with_session();
  std::vector<RunId> order;  // oldest first
  for (int64_t seq = 0; seq < 150; ++seq) {
    const RunId run = create_model(mine, alice, seq);
    saved(run, 1, "a");
    if (seq % 10 != 3) {
      const auto unloaded = plane().unload_model(alice, run, no_trace);
      ASSERT_TRUE(wait(alice, unloaded->request).ok());
    }
    order.push_back(run);
  }
  order.push_back(create_model(mine, alice, 150));  // without a checkpoint
  clock().advance(kSecond);
  ASSERT_TRUE(wait(alice, optim_step(order[3], alice, 2)).ok());  // the oldest that is there is now the newest
  std::rotate(order.begin() + 3, order.begin() + 4, order.end());
  std::reverse(order.begin(), order.end());
  EXPECT_EQ(catalog().training_runs(alice, {0, 1'000}, "").total, 151);
  for (const int64_t limit : {1'000, 64, 7}) {
    std::vector<RunId> listed;
    for (int64_t offset = 0; offset <= 151; offset += limit) {
      for (const TrainingRunView& view : catalog().training_runs(alice, {offset, limit}, "").items) {
        listed.push_back(view.run);
      }
    }
    EXPECT_EQ(listed, order) << limit;
  }
  EXPECT_TRUE(catalog().training_runs(alice, {151, 10}, "").items.empty());
  EXPECT_EQ(catalog().training_runs(bob, {0, 10}, "").total, 0);
  // The same holds for one project.
  ASSERT_TRUE(catalog().set_project(alice, mine, "p").ok());
  const auto of_project = catalog().training_runs(alice, {149, 10}, "p");
  EXPECT_EQ(of_project.total, 151);
  EXPECT_EQ(of_project.items.size(), 2U);
  EXPECT_EQ(catalog().session(alice, mine)->runs.size(), 151U);
}

TEST_F(Listed, CheckpointsArePagedAndFollowChanges) {
  const RunId run = boot_with_run();
  const RunId other = create_model(alice);
  std::vector<std::string> paths;  // oldest first
  for (int i = 0; i < 6; ++i) paths.push_back(saved(i % 2 == 0 ? run : other, i / 2 + 1, "c" + std::to_string(i)));
  const auto listed = [&](PageRequest page) {
    std::vector<std::string> found;
    for (const CheckpointView& view : catalog().checkpoints(alice, page, control::Listed::kAll).items)
      found.push_back(view.tinker_path);
    return found;
  };
  EXPECT_EQ(listed({0, 2}), (std::vector<std::string>{paths[5], paths[4]}));
  EXPECT_EQ(listed({4, 10}), (std::vector<std::string>{paths[1], paths[0]}));
  EXPECT_TRUE(listed({6, 10}).empty());
  EXPECT_EQ(catalog().checkpoints_of(alice, run, {1, 1}, control::Listed::kAll)->items.at(0).tinker_path, paths[2]);
  // A replaced checkpoint becomes the newest, a public one keeps its position, and a deleted one disappears.
  clock().advance(kSecond);
  value<SaveWeightsResult>(alice, save(run, alice, 4, "c0", true));
  ASSERT_TRUE(set_public(alice, paths[4], true).ok());
  std::promise<Status> removed;
  plane().checkpoint_actions().remove(alice, *parse_checkpoint_path(paths[2]), no_trace,
                                      [&](const Status& status) { removed.set_value(status); });
  ASSERT_TRUE(removed.get_future().get().ok());
  const std::vector<std::string> now = {paths[0], paths[5], paths[4], paths[3], paths[1]};
  EXPECT_EQ(listed({0, 10}), now);
  EXPECT_EQ(catalog().checkpoints_of(alice, run, {0, 10}, control::Listed::kAll)->total, 2);
  EXPECT_EQ(catalog().training_run(alice, run, Scope::kOwned)->last_checkpoint->tinker_path, paths[0]);
  EXPECT_EQ(catalog().training_run(bob, run, Scope::kAccessible)->last_checkpoint->tinker_path, paths[4]);
  boot();  // the order is the same after reading from disk
  EXPECT_EQ(listed({0, 10}), now);
}

TEST_F(Listed, OwnsMatchesTheLists) {
  const SessionId mine = boot_with_session();
  const RunId live = create_model(mine, alice, 0);
  const RunId gone = create_model(mine, alice, 1);
  saved(gone, 1, "a");
  const auto unloaded = plane().unload_model(alice, gone, no_trace);
  ASSERT_TRUE(wait(alice, unloaded->request).ok());
  EXPECT_TRUE(catalog().owns_session(alice, mine));
  EXPECT_FALSE(catalog().owns_session(bob, mine));
  for (const RunId& run : {live, gone}) {
    EXPECT_TRUE(catalog().owns_run(alice, run));
    EXPECT_FALSE(catalog().owns_run(bob, run));
  }
  EXPECT_FALSE(catalog().owns_run(alice, RunId("nobody:train:0")));
}

TEST_F(Listed, ForeignRunShowsItsPublicPartOnly) {
  const RunId run = boot_with_run();
  const std::string open = saved(run, 1, "open");
  saved(run, 2, "closed");
  const Error unknown = catalog().training_run(bob, RunId("nobody:train:0"), Scope::kAccessible).error();
  EXPECT_EQ(catalog().training_run(bob, run, Scope::kAccessible).error().message, unknown.message);
  ASSERT_TRUE(set_public(alice, open, true).ok());
  EXPECT_EQ(catalog().training_run(bob, run, Scope::kOwned).error().message, unknown.message);
  const Result<TrainingRunView> view = catalog().training_run(bob, run, Scope::kAccessible);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->owner, alice);
  EXPECT_EQ(view->last_checkpoint->tinker_path, open);
  EXPECT_TRUE(view->user_metadata.empty());
  EXPECT_EQ(view->last_request_time, view->last_checkpoint->created_at);
  EXPECT_EQ(catalog().checkpoints_of(bob, run, {0, 9}, control::Listed::kAll).error().code, ErrorCode::kNotFound);
}

TEST_F(Listed, ProjectFollowsTheSessionAndSurvivesARestart) {
  keep_state();
  const auto [mine, run] = boot_with_session_and_run();
  EXPECT_TRUE(runs(alice, "p").empty());
  EXPECT_EQ(catalog().set_project(bob, mine, "p").error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(catalog().set_project(alice, mine, "p").ok());
  EXPECT_EQ(runs(alice, "p"), std::vector<RunId>{run});
  ASSERT_TRUE(durable().ok());
  crash_and_boot();
  EXPECT_EQ(runs(alice, "p"), std::vector<RunId>{run});
}

}  // namespace
}  // namespace tuft::control
