// A Service over a FakeGeneration and a ByteModel, with one work thread, and the calls of its clients.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "openai/answers.h"
#include "openai/service.h"
#include "openai/tests/byte_model.h"
#include "openai/tests/fake_generation.h"

namespace tuft::openai {

inline const control::UserId kAlice("alice");
inline const control::UserId kBob("bob");

// A request and its reply.
class Call {
 public:
  Call(Service& service, Endpoint endpoint, const Json& body, const control::UserId& user = kAlice)
      : reply_(promise_->get_future()) {
    pending_ = service.complete(endpoint, user, control::RequestId("r-1"), body.dump(), {},
                                [promise = promise_](Reply reply) { promise->set_value(std::move(reply)); });
  }
  Reply reply() { return reply_.get(); }
  Json answer() {
    const Reply got = reply();
    EXPECT_EQ(got.status, 200) << got.body;
    return Json::parse(got.body);
  }
  void give_up() { pending_.reset(); }

 private:
  std::shared_ptr<std::promise<Reply>> promise_ = std::make_shared<std::promise<Reply>>();
  std::future<Reply> reply_;
  Service::PendingPtr pending_;
};

inline std::string next(EventStream& events) {
  auto promise = std::make_shared<std::promise<Result<std::string>>>();
  events.next([promise](Result<std::string> piece) { promise->set_value(std::move(piece)); });
  const auto piece = promise->get_future().get();
  EXPECT_TRUE(piece.ok());
  return *piece;
}

// Returns the data of all events; the last is [DONE].
inline std::vector<Json> read_events(EventStream& events) {
  std::string text;
  for (std::string piece = next(events); !piece.empty(); piece = next(events)) text += piece;
  std::vector<Json> out;
  const std::string done(kDoneEvent);
  EXPECT_TRUE(text.ends_with(done));
  text.resize(text.size() - done.size());
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find("\n\n", at);
    EXPECT_EQ(text.substr(at, 6), "data: ");
    out.push_back(Json::parse(text.substr(at + 6, end - at - 6)));
    at = end + 2;
  }
  return out;
}

inline constexpr int64_t kCostOfRequest = kRequestBytes * kCostOfByte;

// A service with a thread of its own.
struct OneThread {
  OneThread(control::Generation& generation, int64_t user_max, int64_t all_max = 1 << 30)
      : work(std::make_shared<control::WorkPool>(
            1, control::TenantBounds{.quantum = 4 * kCostOfRequest, .user_max = user_max, .all_max = all_max})),
        service(generation, system_clock(), work) {}
  ~OneThread() { work->stop(); }

  const std::shared_ptr<control::WorkPool> work;
  Service service;
};

class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest() { generation.model_config = model.config(); }

  static Json completion(const Json& more = Json::object()) {
    Json body = {{"model", "base/model"}, {"prompt", "hi"}};
    body.update(more);
    return body;
  }
  static Json chat(const Json& more = Json::object()) {
    Json body = {{"model", "base/model"}, {"messages", {{{"role", "user"}, {"content", "hi"}}}}};
    body.update(more);
    return body;
  }
  static std::vector<int32_t> tokens(std::string_view text) {
    std::vector<int32_t> out;
    for (const char c : text) out.push_back(static_cast<uint8_t>(c));
    return out;
  }

  ByteModel model;
  FakeGeneration generation;
  OneThread only{generation, 1 << 30};
  Service& service = only.service;
};

}  // namespace tuft::openai
