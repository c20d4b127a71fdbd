#include "base/id.h"

#include <regex>
#include <set>

#include <gtest/gtest.h>

namespace tuft {
namespace {

TEST(Id, UuidsAreVersionFourAndDiffer) {
  const std::regex form("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}");
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string uuid = random_uuid();
    EXPECT_TRUE(std::regex_match(uuid, form)) << uuid;
    EXPECT_TRUE(seen.insert(uuid).second);
  }
}

}  // namespace
}  // namespace tuft
