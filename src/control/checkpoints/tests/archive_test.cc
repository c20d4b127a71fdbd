// Tests of archives of checkpoints and their tickets.
#include <future>
#include <map>
#include <memory>
#include <string>

#include "control/checkpoints/archive_ticket.h"
#include "control/checkpoints/tests/checkpoint_actions_fixture.h"

namespace tuft::control {
namespace {

class Archives : public CheckpointActionsTest {
 protected:
  Result<std::unique_ptr<Archive>> open(const std::string& ticket) {
    auto answer = std::make_shared<std::promise<Result<std::unique_ptr<Archive>>>>();
    auto future = answer->get_future();
    actions().open_archive(ticket, [answer](auto archive) { answer->set_value(std::move(archive)); });
    return future.get();
  }
  std::string read_all(Archive& archive, size_t piece) {
    std::string all;
    while (true) {
      auto answer = std::make_shared<std::promise<Result<std::string>>>();
      auto future = answer->get_future();
      archive.read(piece, [answer](Result<std::string> bytes) { answer->set_value(std::move(bytes)); });
      const auto bytes = future.get();
      EXPECT_TRUE(bytes.ok());
      if (!bytes.ok() || bytes->empty()) return all;
      EXPECT_LE(bytes->size(), piece);
      all += *bytes;
    }
  }
  // A checkpoint with the files that a real worker writes.
  std::string with_files(const RunId& run, const std::string& tensors) {
    std::string path = saved(run, 1, "a");
    write(folder(run) / "a" / "adapter_config.json", "{}");
    write(folder(run) / "a" / "adapter_model.safetensors", tensors);
    write(folder(run) / "a" / "checkpoint_complete", "");
    return path;
  }
};

std::map<std::string, std::string> members_of(const std::string& tar) {
  std::map<std::string, std::string> members;
  size_t at = 0;
  while (at + 512 <= tar.size() && tar[at] != '\0') {
    const std::string name = tar.c_str() + at;
    EXPECT_EQ(tar.substr(at + 257, 5), "ustar");
    int64_t sum = 0;
    for (size_t i = 0; i < 512; ++i) sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(tar[at + i]);
    EXPECT_EQ(std::stoll(tar.substr(at + 148, 6), nullptr, 8), sum);
    const auto size = static_cast<size_t>(std::stoll(tar.substr(at + 124, 11), nullptr, 8));
    members[name] = tar.substr(at + 512, size);
    at += 512 + (size + 511) / 512 * 512;
  }
  EXPECT_EQ(tar.substr(at), std::string(1024, '\0'));
  return members;
}

TEST_F(Archives, ArchiveContainsTheFilesOfPeft) {
  const RunId run = boot_with_run();
  std::string tensors(5'000, '\0');
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i] = static_cast<char>(i * 7);
  const std::string path = with_files(run, tensors);
  const auto ticket = actions().archive_ticket(alice, path_of(path));
  ASSERT_TRUE(ticket.ok());
  EXPECT_EQ(ticket->expires, clock().wall() + 900 * kSecond);
  EXPECT_EQ(ticket->token.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
            std::string::npos);
  for (const size_t piece : {size_t{97}, size_t{512}, size_t{1} << 20}) {
    auto archive = open(ticket->token);
    ASSERT_TRUE(archive.ok()) << archive.error().message;
    const std::string tar = read_all(**archive, piece);
    EXPECT_EQ(static_cast<int64_t>(tar.size()), (*archive)->size_bytes());
    EXPECT_EQ(members_of(tar),
              (std::map<std::string, std::string>{
                  {"adapter_config.json", "{}"}, {"adapter_model.safetensors", tensors}, {"checkpoint_complete", ""}}));
    EXPECT_EQ((*archive)->file_name(), run_folder(run) + "_weights_a.tar");
  }
}

TEST_F(Archives, OpenArchiveOutlivesItsCheckpoint) {
  const RunId run = boot_with_run();
  const std::string tensors(3'000, 't');
  const std::string path = with_files(run, tensors);
  const std::string ticket = actions().archive_ticket(alice, path_of(path))->token;
  auto archive = open(ticket);
  ASSERT_TRUE(archive.ok());
  saved(run, 2, "other");  // so that the run no longer refers to it
  ASSERT_TRUE(remove(alice, path).ok());
  let_pass();
  EXPECT_EQ(members_of(read_all(**archive, 1'000))["adapter_model.safetensors"], tensors);
  EXPECT_EQ(open(ticket).error().code, ErrorCode::kNotFound);
  archive = not_found("closed");
  let_pass();
  EXPECT_EQ(names_in(folder(run)), std::set<std::string>{"other"});
}

TEST_F(Archives, TicketIsForOneCheckpointAndTime) {
  const RunId run = boot_with_run();
  const std::string path = with_files(run, "x");
  EXPECT_EQ(actions().archive_ticket(bob, path_of(path)).error().code, ErrorCode::kNotFound);
  const std::string ticket = actions().archive_ticket(alice, path_of(path))->token;
  for (const size_t at : {size_t{0}, ticket.size() / 2, ticket.size() - 2}) {
    std::string changed = ticket;
    changed[at] = changed[at] == 'A' ? 'B' : 'A';
    EXPECT_EQ(open(changed).error().code, ErrorCode::kPermissionDenied) << at;
  }
  for (const std::string& foreign : {std::string(), std::string("x"), ticket.substr(0, 20), std::string(10'000, 'A')}) {
    EXPECT_EQ(open(foreign).error().code, ErrorCode::kPermissionDenied);
  }
  EXPECT_TRUE(open(ticket).ok());
  advance(901 * kSecond);
  EXPECT_EQ(open(ticket).error().code, ErrorCode::kPermissionDenied);
}

// Each address makes a record, which waits in memory until the store takes it.
TEST_F(Archives, NoAddressIsGivenWhileTheStoreIsAway) {
  keep_state();
  const RunId run = boot_with_run();
  const std::string path = with_files(run, "x");
  const SaveWeightsExternal request{run, 2, "external", std::nullopt, {}, {}};
  const auto external =
      value<SaveWeightsExternalResult>(alice, plane().save_weights_external(alice, request, no_trace)->request);
  ASSERT_TRUE(actions().archive_ticket(alice, path_of(path)).ok());
  ASSERT_TRUE(actions().file_tickets(alice, path_of(external.path)).ok());
  contents().set_reachable(false);
  (void)set_public(alice, path, true);  // its record meets the outage
  sweep_until([&] { return !plane().ready(); });
  for (const Error& error : {actions().archive_ticket(alice, path_of(path)).error(),
                             actions().file_tickets(alice, path_of(external.path)).error()}) {
    EXPECT_EQ(error.code, ErrorCode::kUnavailable);
    EXPECT_EQ(error.reason, "store_unavailable");
  }
  contents().set_reachable(true);
  sweep_until([&] { return plane().ready(); });
  EXPECT_TRUE(actions().archive_ticket(alice, path_of(path)).ok());
}

TEST_F(Archives, TicketOfAPublicCheckpointIsValidWhileItIsPublic) {
  const RunId run = boot_with_run();
  const std::string path = with_files(run, "x");
  ASSERT_TRUE(set_public(alice, path, true).ok());
  const std::string ticket = actions().archive_ticket(bob, path_of(path))->token;
  EXPECT_TRUE(open(ticket).ok());
  ASSERT_TRUE(set_public(alice, path, false).ok());
  EXPECT_EQ(open(ticket).error().code, ErrorCode::kNotFound);
}

TEST(ArchiveTickets, TicketOfAnotherProcessIsRefused) {
  const ArchiveTickets ours;
  const ArchiveTickets theirs;
  const ArchiveGrant grant{{RunId("r"), CheckpointKind::kSampler, "n"}, 100, UserId("a b")};
  const auto checked = ours.check(ours.issue(grant), 99);
  ASSERT_TRUE(checked.ok());
  EXPECT_EQ(checked->path, grant.path);
  EXPECT_EQ(checked->user, grant.user);
  EXPECT_FALSE(ours.check(theirs.issue(grant), 99).ok());
  EXPECT_FALSE(ours.check(ours.issue(grant), 100).ok());
}

TEST_F(Archives, OpenOnesAreLimitedForEachUserAndInTotal) {
  config().limits.archives_per_user_max = 2;
  config().limits.archives_max = 3;
  const RunId run = boot_with_run();
  const std::string path = with_files(run, "x");
  ASSERT_TRUE(set_public(alice, path, true).ok());
  const auto ticket = [&](const UserId& user) { return actions().archive_ticket(user, path_of(path))->token; };
  auto first = open(ticket(alice));
  const auto second = open(ticket(alice));
  ASSERT_TRUE(first.ok() && second.ok());
  const auto refused = open(ticket(alice));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(refused.error().message.find("limits.archives_per_user_max"), std::string::npos) << refused.error().message;
  const auto bobs = open(ticket(bob));
  ASSERT_TRUE(bobs.ok());
  EXPECT_EQ(open(ticket(UserId("carol"))).error().reason, "archives_max");
  EXPECT_EQ(open(ticket(bob)).error().reason, "archives_max");
  first = open("no ticket");  // the archive is destroyed
  EXPECT_TRUE(open(ticket(alice)).ok());
}

}  // namespace
}  // namespace tuft::control
