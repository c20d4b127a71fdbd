// Tests of the list of models.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "openai/json_tree.h"
#include "openai/service.h"
#include "openai/tests/fake_generation.h"

namespace tuft::openai {
namespace {

const control::UserId kOwner("alice");
const control::UserId kOther("bob");

class Models : public ::testing::Test {
 protected:
  ~Models() override { work->stop(); }

  FakeGeneration generation;
  const std::shared_ptr<control::WorkPool> work =
      std::make_shared<control::WorkPool>(1, control::TenantBounds{.quantum = 1, .user_max = 1, .all_max = 1});
  Service service{generation, system_clock(), work};
};

TEST_F(Models, AreTheOnesOfTheUser) {
  generation.list = {{"base/model", {}, {}, true, 1},
                     {std::string(FakeGeneration::kCheckpoint), kOwner, "base/model", false, 2}};
  const Json list = Json::parse(service.list_models(kOwner).body);
  ASSERT_EQ(list["data"].size(), 2U);
  EXPECT_EQ(Json::parse(service.list_models(kOther).body)["data"].size(), 1U);
  const Json card = Json::parse(service.get_model(kOwner, FakeGeneration::kCheckpoint).body);
  EXPECT_EQ(card, list["data"][1]);
  EXPECT_EQ(card.dump(), R"({"id":"tinker://run/sampler_weights/a","object":"model","created":2,"owned_by":"alice",)"
                         R"("parent":"base/model","is_public":false})");
  EXPECT_EQ(card["owned_by"], "alice");
  EXPECT_EQ(card["parent"], "base/model");
  EXPECT_EQ(service.get_model(kOther, FakeGeneration::kCheckpoint).status, 404);
}

TEST_F(Models, NamesCannotEndTheirText) {
  const std::string name = "a\"b\\c\n";
  generation.list = {{name, control::UserId(name), name, true, 1}};
  const Json list = Json::parse(service.list_models(control::UserId(name)).body);
  ASSERT_EQ(list["data"].size(), 1U);
  for (const char* key : {"id", "owned_by", "parent"}) EXPECT_EQ(list["data"][0][key], name) << key;
  EXPECT_EQ(service.list_models(kOther).body, R"({"object":"list","data":[],"has_more":false})");
}

TEST_F(Models, ArePaged) {
  for (int i = 0; i < 5; ++i) generation.list.push_back({"m" + std::to_string(i), {}, {}, true, i});
  std::vector<std::string> seen;
  for (bool more = true; more;) {
    const Json page = Json::parse(service.list_models(kOwner, seen.empty() ? "" : seen.back(), 2).body);
    EXPECT_LE(page["data"].size(), 2U);
    for (const Json& one : page["data"]) seen.push_back(one["id"]);
    more = page["has_more"];
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"m0", "m1", "m2", "m3", "m4"}));
  const Reply unknown = service.list_models(kOwner, "gone");
  EXPECT_EQ(unknown.status, 400);
  EXPECT_EQ(Json::parse(unknown.body)["error"]["param"], "after");
}

}  // namespace
}  // namespace tuft::openai
