// A control plane for tests of checkpoint actions, with access to the files.
#pragma once

#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "control/tests/plane.h"
#include "control/types/checkpoint.h"

namespace tuft::control {

// A key of age to encrypt archives for.
inline constexpr const char* kRecipient = "age1pwgd5aztyfdygx9mnmxs9amp7uycfrj4k7tzsgwd5q8ccq3j0d4s6wy6mu";

class CheckpointActionsTest : public PlaneTest {
 protected:
  CheckpointActions& actions() { return plane().checkpoint_actions(); }
  // Calls `call` with a callback and waits for its result.
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
  Status set_ttl(const UserId& user, const std::string& path, std::optional<int64_t> seconds) {
    return await([&](auto done) { actions().set_ttl(user, path_of(path), seconds, no_trace, done); });
  }
  // Advances the clock and waits until the disk thread has done what is due, by waiting for a later action.
  void let_pass(Nanos by = 3 * kSecond) {
    if (carols_.empty()) {
      carols_ = value<SaveWeightsResult>(carol_, save(create_model(carol_), carol_, 1, "fence")).path;
    }
    advance(by);
    EXPECT_TRUE(set_public(carol_, carols_, false).ok());
  }
  std::string saved(const RunId& run, int64_t seq, const std::string& name, bool overwrite = false) {
    return value<SaveWeightsResult>(alice, save(run, alice, seq, name, overwrite)).path;
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
