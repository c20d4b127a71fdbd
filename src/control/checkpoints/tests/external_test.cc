// Tests of checkpoints for download.
#include <future>
#include <memory>
#include <string>

#include "control/age/encryption.h"
#include "control/checkpoints/tests/checkpoint_actions_fixture.h"

namespace tuft::control {
namespace {

class ExternalWeights : public CheckpointActionsTest {
 protected:
  using Recipients = std::optional<std::vector<std::string>>;

  RequestId save_external(const RunId& run, int64_t seq, const std::string& name, Recipients recipients = {},
                          std::optional<int64_t> ttl = {}) {
    const SaveWeightsExternal request{run, seq, name, ttl, {}, std::move(recipients)};
    const auto submitted = plane().save_weights_external(alice, request, no_trace);
    EXPECT_TRUE(submitted.ok()) << submitted.error().message;
    return submitted.ok() ? submitted->request : RequestId();
  }
  std::string external(const RunId& run, int64_t seq, const std::string& name, Recipients recipients = {}) {
    return value<SaveWeightsExternalResult>(alice, save_external(run, seq, name, std::move(recipients))).path;
  }
  Result<CheckpointActions::FileTickets> tickets(const UserId& user, const std::string& path) {
    return actions().file_tickets(user, path_of(path));
  }
  // Returns the content behind a ticket, or the name of the error.
  std::string download(const std::string& ticket) {
    auto answer = std::make_shared<std::promise<Result<std::unique_ptr<Archive>>>>();
    auto future = answer->get_future();
    actions().open_archive(ticket, [answer](auto archive) { answer->set_value(std::move(archive)); });
    const auto opened = future.get();
    if (!opened.ok()) return std::string(error_code_name(opened.error().code));
    std::string all;
    while (true) {
      auto piece = std::make_shared<std::promise<Result<std::string>>>();
      auto next = piece->get_future();
      (*opened)->read(5, [piece](Result<std::string> bytes) { piece->set_value(std::move(bytes)); });
      const auto bytes = next.get();
      EXPECT_TRUE(bytes.ok());
      if (!bytes.ok() || bytes->empty()) break;
      all += *bytes;
    }
    EXPECT_EQ(static_cast<int64_t>(all.size()), (*opened)->size_bytes());
    return all;
  }
};

TEST_F(ExternalWeights, EachFileHasATicketThatNeedsNoUser) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  const auto saved = value<SaveWeightsExternalResult>(alice, save_external(run, 2, "final"));
  EXPECT_EQ(saved.path, "tinker://" + run.str() + "/external_weights/final");
  EXPECT_EQ(saved.size_bytes, 100);
  const auto files = tickets(alice, saved.path);
  ASSERT_TRUE(files.ok()) << files.error().message;
  ASSERT_EQ(files->files.size(), 2U);
  EXPECT_EQ(files->files[0].first, "adapter_config.json");
  EXPECT_EQ(files->files[1].first, "adapter_model.safetensors");
  EXPECT_EQ(download(files->files[0].second), "{}");
  EXPECT_EQ(download(files->files[1].second), "weights 1");
  std::string changed = files->files[1].second;
  changed.back() = changed.back() == 'A' ? 'B' : 'A';
  EXPECT_EQ(download(changed), "permission_denied");
  const auto calls = worker().calls_of("save_state");
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].find("optimizer"), std::string::npos);
  advance(16 * 60 * kSecond);
  EXPECT_EQ(download(files->files[1].second), "permission_denied") << "it has expired";
}

TEST_F(ExternalWeights, OnlyTheOwnerAndReadersOfPublicOnesGetTickets) {
  const RunId run = boot_with_run();
  const std::string path = external(run, 1, "a");
  const auto hidden = tickets(bob, path);
  EXPECT_EQ(hidden.error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(set_public(alice, path, true).ok());
  const auto shown = tickets(bob, path);
  ASSERT_TRUE(shown.ok());
  EXPECT_EQ(download(shown->files[0].second), "{}");
  ASSERT_TRUE(set_public(alice, path, false).ok());
  EXPECT_EQ(download(shown->files[0].second), "not_found");
  const std::string training = saved(run, 2, "t");
  EXPECT_EQ(tickets(alice, training).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(tickets(bob, training).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(actions().archive_ticket(alice, path_of(path)).error().reason, "external_checkpoint");
}

TEST_F(ExternalWeights, TheyAreListedDescribedKeptAndDeleted) {
  keep_state();
  const RunId run = boot_with_run();
  const std::string path = external(run, 1, "a", Recipients({kRecipient}));
  const auto listed = [&] { return plane().catalog().checkpoints_of(alice, run, {0, 10}, Listed::kAll)->items.at(0); };
  EXPECT_EQ(listed().checkpoint_id, "external_weights/a");
  EXPECT_EQ(listed().kind, CheckpointKind::kExternal);
  const std::string loadable = saved(run, 2, "t");
  const auto of_run = plane().catalog().checkpoints_of(alice, run, {0, 10}, Listed::kLoadable);
  const auto of_user = plane().catalog().checkpoints(alice, {0, 10}, Listed::kLoadable);
  for (const Page<CheckpointView>& page : {*of_run, of_user}) {
    EXPECT_EQ(page.total, 1);
    ASSERT_EQ(page.items.size(), 1U);
    EXPECT_EQ(page.items[0].tinker_path, loadable);
  }
  EXPECT_EQ(plane().catalog().checkpoints(alice, {0, 10}, Listed::kAll).total, 2);
  ASSERT_TRUE(remove(alice, loadable).ok());
  EXPECT_EQ(plane().catalog().checkpoints(alice, {0, 10}, Listed::kLoadable).total, 0);
  ASSERT_TRUE(durable().ok());
  const auto unloaded = plane().unload_model(alice, run, no_trace);
  ASSERT_TRUE(wait(alice, unloaded->request).ok());
  crash_and_boot();
  EXPECT_EQ(plane().weights_info(alice, path)->lora_rank, 8);
  EXPECT_EQ(plane().catalog().training_run(alice, run, Scope::kOwned)->base_model, model) << "it has only this one";
  EXPECT_EQ(tickets(alice, path)->files[0].first, "adapter_config.json.age");
  ASSERT_TRUE(set_ttl(alice, path, 10).ok());
  let_pass(11 * kSecond);
  let_pass();
  EXPECT_FALSE(visible(alice, path));
  EXPECT_TRUE(names_in(folder(run, "external_weights")).empty());
}

TEST_F(ExternalWeights, TheyAreNeitherLoadedNorSampledNorCopied) {
  const auto [s, run] = boot_with_session_and_run();
  const std::string path = external(run, 1, "a");
  EXPECT_EQ(failure(alice, load(run, alice, 2, path)).reason, "external_checkpoint");
  EXPECT_EQ(try_sampler(s, alice, 0, "", path).error().reason, "external_checkpoint");
  EXPECT_EQ(try_sampler(session(bob), bob, 0, "", path).error().code, ErrorCode::kNotFound);
  auto answer = std::make_shared<std::promise<Result<std::string>>>();
  CopyWeights request;
  request.source_path = path;
  actions().copy(alice, request, no_trace, [answer](Result<std::string> made) { answer->set_value(std::move(made)); });
  EXPECT_EQ(answer->get_future().get().error().reason, "external_checkpoint");
}

TEST_F(ExternalWeights, ANameIsUsedOnceAndRequired) {
  const RunId run = boot_with_run();
  const std::string path = external(run, 1, "a");
  EXPECT_EQ(failure(alice, save_external(run, 2, "a")).code, ErrorCode::kAlreadyExists);
  ASSERT_TRUE(remove(alice, path).ok());
  EXPECT_EQ(external(run, 3, "a"), path);
  EXPECT_EQ(failure(alice, save_external(run, 4, "")).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure(alice, save_external(run, 5, "../a")).reason, "invalid_checkpoint_name");
}

TEST_F(ExternalWeights, RecipientsEncryptEveryFile) {
  const RunId run = boot_with_run();
  const auto saved = value<SaveWeightsExternalResult>(alice, save_external(run, 1, "a", Recipients({kRecipient})));
  EXPECT_EQ(
      names_in(folder(run, "external_weights") / "a"),
      (std::set<std::string>{"adapter_config.json.age", "adapter_model.safetensors.age", "metadata.json", "weights"}));
  EXPECT_GT(saved.size_bytes, 100);
  const auto files = tickets(alice, saved.path);
  ASSERT_EQ(files->files.size(), 2U);
  for (const auto& [name, ticket] : files->files) {
    EXPECT_TRUE(name.ends_with(".age")) << name;
    const std::string content = download(ticket);
    EXPECT_TRUE(content.starts_with("age-encryption.org/v1\n-> X25519 ")) << name;
    EXPECT_EQ(content.find("weights 0"), std::string::npos);
  }
}

TEST_F(ExternalWeights, WrongRecipientsAreTheUsersErrorAndWriteNothing) {
  const RunId run = boot_with_run();
  int64_t seq = 0;
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{},
                                                {"ssh-ed25519 AAAA"},
                                                {kRecipient, "age1x"},
                                                std::vector<std::string>(11, kRecipient)}) {
    const Error error = failure(alice, save_external(run, ++seq, "a", Recipients(wrong)));
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.reason, "invalid_age_recipient") << error.message;
  }
  EXPECT_FALSE(std::filesystem::exists(folder(run, "external_weights")));
  EXPECT_TRUE(worker().calls_of("save_state").empty());
}

}  // namespace
}  // namespace tuft::control
