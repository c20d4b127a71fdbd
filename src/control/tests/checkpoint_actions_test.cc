// What owners do with checkpoints, how long files live, and archives.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <future>
#include <map>
#include <set>
#include <thread>

#include "control/archive_ticket.h"
#include "control/checkpoint.h"
#include "control/disk_worker.h"
#include "control/tests/plane.h"

namespace tuft::control {
namespace {

namespace fs = std::filesystem;

CheckpointPath path_of(const std::string& text) {
  auto path = parse_checkpoint_path(text);
  EXPECT_TRUE(path.ok()) << text;
  return path.ok() ? *path : CheckpointPath{};
}

class CheckpointDeeds : public PlaneTest {
 protected:
  CheckpointActions& actions() { return plane().checkpoint_actions(); }
  // Runs `call` with a done, and waits for it.
  template <typename Call>
  Status await(Call call) {
    auto answer = std::make_shared<std::promise<Status>>();
    auto future = answer->get_future();
    call([answer](Status status) { answer->set_value(std::move(status)); });
    return future.get();
  }
  Status remove(const UserId& user, const std::string& path) {
    return await([&](auto done) { actions().remove(user, path_of(path), no_trace, done); });
  }
  Status publish(const UserId& user, const std::string& path, bool is_public) {
    return await([&](auto done) { actions().set_public(user, path_of(path), is_public, no_trace, done); });
  }
  Status set_ttl(const UserId& user, const std::string& path, std::optional<int64_t> seconds) {
    return await([&](auto done) { actions().set_ttl(user, path_of(path), seconds, no_trace, done); });
  }
  // Everything that is due has happened on disk: the thread has come to an action that was asked for after it.
  void settle(Nanos by = 3 * kSecond) {
    if (carols_.empty()) {
      carols_ = value<SaveWeightsResult>(carol_, save(create_model(carol_), carol_, 1, "fence")).path;
    }
    advance(by);
    EXPECT_TRUE(publish(carol_, carols_, false).ok());
  }
  std::string saved(const RunId& run, int64_t seq, const std::string& name, bool overwrite = false) {
    return value<SaveWeightsResult>(alice, save(run, alice, seq, name, overwrite)).path;
  }
  fs::path folder(const RunId& run, const char* kind = "weights") {
    return config().checkpoint_dir / run_folder(run) / kind;
  }
  std::set<std::string> names_in(const fs::path& directory) {
    std::set<std::string> names;
    std::error_code code;
    for (const auto& entry : fs::directory_iterator(directory, code)) names.insert(entry.path().filename().string());
    return names;
  }
  void write(const fs::path& file, const std::string& content) { std::ofstream(file, std::ios::binary) << content; }
  ErrorCode load_error(const UserId& user, const std::string& path) {
    const auto info = plane().weights_info(user, path);
    return info.ok() ? ErrorCode::kInternal : info.error().code;
  }
  bool visible(const UserId& user, const std::string& path) { return plane().weights_info(user, path).ok(); }

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

 private:
  const UserId carol_{"carol"};
  std::string carols_;
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

TEST_F(CheckpointDeeds, ADeletedOneIsGoneForEverybodyButItsSamplers) {
  boot();
  const SessionId s = session(alice);
  const RunId run = create_model(s, alice);
  optim_step(run, alice, 1);
  const std::string path = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 2, "live")).path;
  const SamplerId sampler = *try_sampler(s, alice, 0, "", path);
  ASSERT_TRUE(remove(alice, path).ok());
  EXPECT_FALSE(visible(alice, path));
  EXPECT_EQ(remove(alice, path).error().code, ErrorCode::kNotFound);
  worker().die();
  worker().start();
  settle();
  value<ProtobufResult>(alice, sample(sampler, alice));
  EXPECT_FALSE(try_sampler(s, alice, 1, "", path).ok());
  // The name is free again, beside the files that are still in use.
  optim_step(run, alice, 3);
  value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 4, "live"));
  EXPECT_EQ(names_in(folder(run, "sampler_weights")), (std::set<std::string>{"live", "live~2"}));
  boot();  // nobody uses the old files any more
  EXPECT_EQ(names_in(folder(run, "sampler_weights")), std::set<std::string>{"live~2"});
  EXPECT_TRUE(visible(alice, path));
}

TEST_F(CheckpointDeeds, ADeleteThatWasAnsweredUnavailableCanBeAskedForAgain) {
  keep_state();
  boot();
  const std::string path = saved(create_model(alice), 1, "a");
  contents().set_reachable(false);
  EXPECT_EQ(remove(alice, path).error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(visible(alice, path));
  contents().set_reachable(true);
  while (!plane().ready()) advance(kSecond / 10);
  EXPECT_EQ(remove(bob, path).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(remove(alice, path).ok());
  EXPECT_EQ(remove(alice, path).error().code, ErrorCode::kNotFound);
}

TEST_F(CheckpointDeeds, FilesThatNobodyUsesGoAtOnce) {
  boot();
  const RunId run = create_model(alice);
  const std::string first = saved(run, 1, "first");
  saved(run, 2, "second");
  ASSERT_TRUE(remove(alice, first).ok());
  settle();
  EXPECT_EQ(names_in(folder(run)), std::set<std::string>{"second"});
}

TEST_F(CheckpointDeeds, ARunGoesBackToADeletedOneAsLongAsTheServerLives) {
  boot();
  const RunId run = create_model(alice);
  optim_step(run, alice, 1);
  ASSERT_TRUE(remove(alice, saved(run, 2, "only")).ok());
  settle();
  worker().die();
  worker().start();
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(CheckpointDeeds, OnlyTheOwnerActs) {
  boot();
  const RunId run = create_model(alice);
  const std::string path = saved(run, 1, "x");
  const Status foreign = remove(bob, path);
  EXPECT_EQ(foreign.error().code, ErrorCode::kNotFound);
  const Status unknown = remove(bob, "tinker://" + run.str() + "/weights/y");
  EXPECT_EQ(unknown.error().message.substr(unknown.error().message.find(' ', 11)),
            foreign.error().message.substr(foreign.error().message.find(' ', 11)));
  EXPECT_EQ(publish(bob, path, true).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(publish(alice, path, true).ok());
  EXPECT_EQ(remove(bob, path).error().code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(set_ttl(bob, path, 5).error().code, ErrorCode::kPermissionDenied);
  EXPECT_TRUE(visible(alice, path));
}

// Keeps the disk thread until it is released.
class HeldDisk {
 public:
  std::function<void(Status)> done() {
    return [reached = &reached_, gate = gate_.get_future().share()](const Status&) {
      reached->set_value();
      gate.wait();
    };
  }
  void await_held() { reached_.get_future().wait(); }
  void release() { gate_.set_value(); }

 private:
  std::promise<void> reached_, gate_;
};

TEST_F(CheckpointDeeds, WhoFillsTheDisksQueueHoldsNobodyElseUp) {
  boot();
  const std::string alices = saved(create_model(alice), 1, "x");
  const std::string bobs = value<SaveWeightsResult>(bob, save(create_model(bob), bob, 1, "x")).path;
  HeldDisk disk;
  actions().set_public(alice, path_of(alices), true, no_trace, disk.done());
  disk.await_held();
  std::vector<std::promise<Status>> waiting(DiskWorker::kTasksPerUserMax);
  std::atomic<int> answered = 0;
  for (std::promise<Status>& each : waiting) {
    actions().set_ttl(alice, path_of(alices), 100, no_trace, [&](Status status) {
      ++answered;
      each.set_value(std::move(status));
    });
  }
  const Status over = set_ttl(alice, alices, 100);  // answered although the disk is held
  EXPECT_EQ(over.error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(is_user_error(over.error().code));
  std::promise<int> bobs_turn;
  actions().remove(bob, path_of(bobs), no_trace, [&](const Status& status) {
    EXPECT_TRUE(status.ok());
    bobs_turn.set_value(answered);
  });
  disk.release();
  EXPECT_LE(bobs_turn.get_future().get(), 2);
  for (std::promise<Status>& each : waiting) EXPECT_TRUE(each.get_future().get().ok());
}

TEST_F(CheckpointDeeds, StrangersTakeNoPlaceInTheDisksQueue) {
  boot();
  const std::string path = saved(create_model(alice), 1, "x");
  HeldDisk disk;
  actions().set_public(alice, path_of(path), false, no_trace, disk.done());
  disk.await_held();
  for (int i = 0; i < 2 * DiskWorker::kTasksPerUserMax; ++i) {
    ASSERT_EQ(remove(bob, path).error().code, ErrorCode::kNotFound);
    ASSERT_EQ(remove(bob, "tinker://none/weights/none").error().code, ErrorCode::kNotFound);
  }
  disk.release();
}

TEST_F(CheckpointDeeds, ASaveThatTheWorkerHasMadeIsKeptWhereTheQueueIsFull) {
  boot();
  const RunId run = create_model(alice);
  const std::string path = saved(run, 1, "x");
  worker().hold_answers(true);
  const RequestId save_request = save(run, alice, 2, "y");
  while (worker().calls_of("save_state").size() < 2) std::this_thread::yield();
  HeldDisk disk;
  actions().set_public(alice, path_of(path), true, no_trace, disk.done());
  disk.await_held();
  for (int i = 0; i < DiskWorker::kTasksPerUserMax; ++i) {
    actions().set_ttl(alice, path_of(path), 100, no_trace, [](const Status& status) { EXPECT_TRUE(status.ok()); });
  }
  worker().answer_all();
  disk.release();
  EXPECT_EQ(value<SaveWeightsResult>(alice, save_request).path, "tinker://" + run.str() + "/weights/y");
}

TEST_F(CheckpointDeeds, APublishedOneIsForEverybodyUntilItIsNot) {
  keep_state();
  boot();
  const RunId run = create_model(alice);
  const std::string path = saved(run, 1, "x");
  EXPECT_FALSE(visible(bob, path));
  ASSERT_TRUE(publish(alice, path, true).ok());
  ASSERT_TRUE(publish(alice, path, true).ok());
  const RunId other = create_model(bob);
  value<LoadWeightsResult>(bob, load(other, bob, 1, path));
  EXPECT_TRUE(try_sampler(session(bob), bob, 0, "", path).ok());
  boot();  // it is written down
  EXPECT_TRUE(visible(bob, path));
  ASSERT_TRUE(publish(alice, path, false).ok());
  EXPECT_FALSE(visible(bob, path));
  boot();
  EXPECT_FALSE(visible(bob, path));
}

TEST_F(CheckpointDeeds, OneWithATtlGoesWhenItIsOver) {
  boot();
  const RunId run = create_model(alice);
  SaveWeights request{run, 1, "short", 10, false};
  value<SaveWeightsResult>(alice, plane().save_weights(alice, request, no_trace)->request);
  SaveWeightsForSampler sampler_request{run, 2, "short", std::nullopt, 10};
  value<SaveWeightsForSamplerResult>(alice,
                                     plane().save_weights_for_sampler(alice, sampler_request, no_trace)->request);
  const std::string base = "tinker://" + run.str();
  const std::string kept = saved(run, 3, "kept");
  settle(9 * kSecond);
  EXPECT_TRUE(visible(alice, base + "/weights/short"));
  settle();
  EXPECT_FALSE(visible(alice, base + "/weights/short"));
  EXPECT_FALSE(visible(alice, base + "/sampler_weights/short"));
  settle();
  EXPECT_TRUE(visible(alice, kept));
  EXPECT_EQ(names_in(folder(run)), std::set<std::string>{"kept"});
  EXPECT_TRUE(names_in(folder(run, "sampler_weights")).empty());
}

TEST_F(CheckpointDeeds, ATtlCanBeSetChangedAndTakenAway) {
  boot();
  const RunId run = create_model(alice);
  const std::string path = saved(run, 1, "x");
  ASSERT_TRUE(set_ttl(alice, path, 10).ok());
  ASSERT_TRUE(set_ttl(alice, path, 1'000).ok());
  settle(20 * kSecond);
  EXPECT_TRUE(visible(alice, path));
  ASSERT_TRUE(set_ttl(alice, path, std::nullopt).ok());
  settle(2'000 * kSecond);
  EXPECT_TRUE(visible(alice, path));
  EXPECT_EQ(set_ttl(alice, path, 0).error().code, ErrorCode::kInvalidArgument);
  ASSERT_TRUE(set_ttl(alice, path, std::numeric_limits<int64_t>::max()).ok());
  ASSERT_TRUE(set_ttl(alice, path, 5).ok());
  boot();  // it is written down
  settle(10 * kSecond);
  EXPECT_FALSE(visible(alice, path));
}

TEST_F(CheckpointDeeds, ASaveOverTheUsersBytesFailsBeforeTheWorkerWrites) {
  config().limits.checkpoint_bytes_per_user_max = 250;  // each is 100
  boot();
  const RunId run = create_model(alice);
  const std::string first = saved(run, 1, "one");
  saved(run, 2, "two");
  worker().clear_calls();
  const Error error = failure(alice, save(run, alice, 3, "three"));
  EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(is_user_error(error.code));
  EXPECT_NE(error.message.find("limits.checkpoint_bytes_per_user_max"), std::string::npos) << error.message;
  EXPECT_TRUE(worker().calls_of("save_state").empty());
  saved(run, 4, "two", true);  // takes no more
  ASSERT_TRUE(remove(alice, first).ok());
  saved(run, 5, "three");
  value<SaveWeightsResult>(bob, save(create_model(bob), bob, 1, "mine"));  // others' do not count
}

TEST_F(CheckpointDeeds, UnnamedSavesMakeRoomForNewerOnes) {
  config().limits.checkpoint_bytes_per_user_max = 250;
  boot();
  const SessionId s = session(alice);
  const RunId run = create_model(s, alice);
  std::vector<SamplerId> samplers;
  const auto save_unnamed = [&] {
    const auto seq = static_cast<int64_t>(samplers.size()) + 1;
    samplers.push_back(*value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, seq, "", seq)).sampler);
    clock().advance(kSecond);
  };
  for (int i = 0; i < 4; ++i) save_unnamed();
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(plane().get_sampler(alice, samplers[i]).ok(), i >= 2) << i;
  const Error error = plane().get_sampler(alice, samplers[0]).error();
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_NE(error.message.find("limits.checkpoint_bytes_per_user_max"), std::string::npos) << error.message;
  EXPECT_EQ(plane().get_sampler(bob, samplers[0]).error().message,
            plane().get_sampler(bob, SamplerId("none")).error().message);
  // Not one that is in use, nor for what would not fit anyway. No answer about a file may be held.
  PlaneTest::settle();
  worker().hold_answers(true);
  const RequestId running = sample(samplers[2], alice);
  worker().hold_answers(false);
  save_unnamed();
  EXPECT_TRUE(plane().get_sampler(alice, samplers[2]).ok());
  EXPECT_FALSE(plane().get_sampler(alice, samplers[3]).ok());
  worker().answer_all();
  value<ProtobufResult>(alice, running);
  saved(run, 6, "named");
  saved(run, 7, "another");
  EXPECT_EQ(failure(alice, save(run, alice, 8, "third")).reason, "checkpoint_bytes_per_user_max");
}

TEST_F(CheckpointDeeds, ASamplerThatCannotComeBackSaysWhy) {
  keep_state();
  boot();
  const SessionId s = session(alice);
  const RunId run = create_model(s, alice);
  const std::string path = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "live")).path;
  const SamplerId sampler = *try_sampler(s, alice, 0, "", path);
  ASSERT_TRUE(remove(alice, path).ok());
  EXPECT_TRUE(plane().get_sampler(alice, sampler).ok());
  close();
  boot();
  for (const Error& error : {plane().get_sampler(alice, sampler).error(),
                             plane().sample(alice, sample_request(sampler), no_trace).error()}) {
    EXPECT_EQ(error.code, ErrorCode::kNotFound);
    EXPECT_NE(error.message.find(path + " was deleted or replaced"), std::string::npos) << error.message;
  }
  EXPECT_EQ(plane().get_sampler(bob, sampler).error().reason, "sampler_not_found");
}

TEST_F(CheckpointDeeds, ASaveWhoseSizeWasNotKnownIsRemovedAgain) {
  config().limits.checkpoint_bytes_per_user_max = 50;
  boot();
  const RunId run = create_model(alice);
  EXPECT_EQ(failure(alice, save(run, alice, 1, "x")).code, ErrorCode::kResourceExhausted);
  EXPECT_FALSE(visible(alice, "tinker://" + run.str() + "/weights/x"));
  EXPECT_TRUE(names_in(folder(run)).empty());
}

TEST_F(CheckpointDeeds, WhatACrashLeftIsRemovedAndNeverSeen) {
  boot();
  const RunId run = create_model(alice);
  optim_step(run, alice, 1);
  const std::string path = saved(run, 2, "x");
  const fs::path weights = folder(run);
  const auto copy = [&](const char* to) { fs::copy(weights / "x", weights / to, fs::copy_options::recursive); };
  copy("x~2");  // replaced, and the old one not marked yet
  write(weights / "x~2" / "weights", "7");
  copy("x~3");  // deleted, and its files not removed yet
  fs::rename(weights / "x~3" / "metadata.json", weights / "x~3" / "deleted.json");
  copy(".tuft-abc");            // saved by the worker, not in its place yet
  copy("..tuft-abd.tmp-1234");  // being written by the worker
  write(weights / "x~2" / "metadata.json.tmp-1234", "{");
  boot();
  EXPECT_EQ(names_in(weights), std::set<std::string>{"x~2"});
  EXPECT_EQ(names_in(weights / "x~2"), (std::set<std::string>{"metadata.json", "weights"}));
  const RunId other = create_model(alice);
  value<LoadWeightsResult>(alice, load(other, alice, 1, path));
  EXPECT_EQ(worker().weights_of(other.str()), 7);
}

TEST_F(CheckpointDeeds, ForeignDirectoriesAreLeftAloneAndNotUsed) {
  boot();
  const RunId run = create_model(alice);
  saved(run, 1, "x");
  const fs::path weights = folder(run);
  const auto copy = [&](const char* to) { fs::copy(weights / "x", weights / to, fs::copy_options::recursive); };
  copy("renamed");
  fs::create_directory(weights / "empty");
  fs::create_directory_symlink(weights / "x", weights / "linked");
  fs::create_directory(weights / "later");
  std::ifstream file(weights / "x" / "metadata.json");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  text.replace(text.find("\"format_version\": 1"), 19, "\"format_version\": 2");
  write(weights / "x" / "metadata.json", text);
  const std::string base = "tinker://" + run.str() + "/weights/";
  boot();
  for (const char* name : {"x", "renamed", "empty", "linked", "later"}) {
    EXPECT_FALSE(visible(alice, base + name)) << name;
    EXPECT_TRUE(fs::exists(weights / name)) << name;
  }
}

TEST_F(CheckpointDeeds, ACheckpointWithALinkInsideIsNotUsed) {
  boot();
  const RunId run = create_model(alice);
  const std::string path = saved(run, 1, "x");
  fs::create_symlink("/etc/hostname", folder(run) / "x" / "adapter_model.safetensors");
  boot();
  EXPECT_FALSE(visible(alice, path));
}

TEST_F(CheckpointDeeds, AnEphemeralOneStaysWhereARecordCannotBeRead) {
  keep_state();
  boot();
  const SessionId s = session(alice);
  const RunId run = create_model(s, alice);
  const SamplerId sampler = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "", 5)).sampler;
  const auto records = contents().copy();
  const std::string ending = "::sampling_session::" + sampler.str();
  const auto found =
      std::find_if(records.begin(), records.end(), [&](const auto& e) { return e.first.ends_with(ending); });
  ASSERT_NE(found, records.end());
  contents().put(found->first, "{torn");
  boot();
  EXPECT_EQ(names_in(folder(run, "sampler_weights")), std::set<std::string>{"ephemeral-0001"});
  contents().put(found->first, found->second);
  boot();
  value<ProtobufResult>(alice, sample(sampler, alice));
}

// ---- archives

TEST_F(CheckpointDeeds, AnArchiveHoldsTheFilesOfPeftByteForByte) {
  boot();
  const RunId run = create_model(alice);
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

TEST_F(CheckpointDeeds, AnOpenArchiveOutlivesItsCheckpoint) {
  boot();
  const RunId run = create_model(alice);
  const std::string tensors(3'000, 't');
  const std::string path = with_files(run, tensors);
  const std::string ticket = actions().archive_ticket(alice, path_of(path))->token;
  auto archive = open(ticket);
  ASSERT_TRUE(archive.ok());
  saved(run, 2, "other");  // so that the run does not hold it
  ASSERT_TRUE(remove(alice, path).ok());
  settle();
  EXPECT_EQ(members_of(read_all(**archive, 1'000))["adapter_model.safetensors"], tensors);
  EXPECT_EQ(open(ticket).error().code, ErrorCode::kNotFound);
  archive = not_found("closed");
  settle();
  EXPECT_EQ(names_in(folder(run)), std::set<std::string>{"other"});
}

TEST_F(CheckpointDeeds, ATicketIsForThatCheckpointAndThatWhile) {
  boot();
  const RunId run = create_model(alice);
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

TEST_F(CheckpointDeeds, ATicketOfAPublicOneIsGoodAsLongAsItIsPublic) {
  boot();
  const RunId run = create_model(alice);
  const std::string path = with_files(run, "x");
  ASSERT_TRUE(publish(alice, path, true).ok());
  const std::string ticket = actions().archive_ticket(bob, path_of(path))->token;
  EXPECT_TRUE(open(ticket).ok());
  ASSERT_TRUE(publish(alice, path, false).ok());
  EXPECT_EQ(open(ticket).error().code, ErrorCode::kNotFound);
}

TEST(ArchiveTickets, OneOfAnotherProcessIsNotOurs) {
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

TEST(CheckpointTimes, ComeBackAsTheyWent) {
  const Nanos time = 1'769'860'800 * kSecond + 123'456 * kMicrosecond;
  EXPECT_EQ(iso_time(time), "2026-01-31T12:00:00.123456+00:00");
  EXPECT_EQ(parse_iso_time(iso_time(time)), time);
  for (const char* text : {"", "2026-01-31", "2026-02-30T12:00:00.000000+00:00", "2026-01-31T12:00:00.000000+01:00",
                           "2026-01-31T12:00:00.000000+00:00x"}) {
    EXPECT_FALSE(parse_iso_time(text).has_value()) << text;
  }
  EXPECT_EQ(parse_iso_time(iso_time(expiry_after(time, std::numeric_limits<int64_t>::max()))),
            expiry_after(time, std::numeric_limits<int64_t>::max()));
}

}  // namespace
}  // namespace tuft::control
