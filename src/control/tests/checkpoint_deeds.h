// A plane whose owners do things with checkpoints, and a look at the files.
#pragma once

#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "control/checkpoint.h"
#include "control/tests/plane.h"

namespace tuft::control {

inline CheckpointPath path_of(const std::string& text) {
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
  // Time passes, and what is due then has happened on disk: the thread has come to an action that was asked for later.
  void let_pass(Nanos by = 3 * kSecond) {
    if (carols_.empty()) {
      carols_ = value<SaveWeightsResult>(carol_, save(create_model(carol_), carol_, 1, "fence")).path;
    }
    advance(by);
    EXPECT_TRUE(publish(carol_, carols_, false).ok());
  }
  std::string saved(const RunId& run, int64_t seq, const std::string& name, bool overwrite = false) {
    return value<SaveWeightsResult>(alice, save(run, alice, seq, name, overwrite)).path;
  }
  std::filesystem::path folder(const RunId& run, const char* kind = "weights") {
    return config().checkpoint_dir / run_folder(run) / kind;
  }
  std::set<std::string> names_in(const std::filesystem::path& directory) {
    std::set<std::string> names;
    std::error_code code;
    for (const auto& entry : std::filesystem::directory_iterator(directory, code)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
  void write(const std::filesystem::path& file, const std::string& content) {
    std::ofstream(file, std::ios::binary) << content;
  }
  bool visible(const UserId& user, const std::string& path) { return plane().weights_info(user, path).ok(); }

 private:
  const UserId carol_{"carol"};
  std::string carols_;
};

}  // namespace tuft::control
