#include "api/routing/query.h"

#include <gtest/gtest.h>

namespace tuft::api {
namespace {

TEST(Query, AbsentKeysHaveDefaults) {
  QueryFields query("");
  const control::PageRequest page = query.page(20, 500);
  EXPECT_EQ(page.limit, 20);
  EXPECT_EQ(page.offset, 0);
  EXPECT_EQ(query.text("project_id", 10), std::nullopt);
  EXPECT_EQ(query.word("access_scope", "owned", {"owned", "accessible"}), "owned");
  EXPECT_TRUE(query.status().ok());
}

TEST(Query, FieldsAreDecodedAndUnknownOnesIgnored) {
  QueryFields query("limit=500&&x&y=%zz&offset=12&project_id=a%20b+c%2F%C3%A9&access_scope=accessible&=1&limit%31=0");
  const control::PageRequest page = query.page(20, 500);
  EXPECT_EQ(page.limit, 500);
  EXPECT_EQ(page.offset, 12);
  EXPECT_EQ(query.text("project_id", 20), "a b c/\xc3\xa9");
  EXPECT_EQ(query.word("access_scope", "owned", {"owned", "accessible"}), "accessible");
  EXPECT_TRUE(query.status().ok()) << query.status().error().message;
}

TEST(Query, LastOfARepeatedKeyCounts) {
  EXPECT_EQ(QueryFields("limit=1&limit=2").integer("limit", 0, 0, 9), 2);
}

TEST(Query, ProblemsNameTheKeyButNotTheValue) {
  QueryFields query("limit=501&offset=-1&project_id=secret%00&access_scope=secret&n=1secret&m=&long=secret-secret");
  query.page(20, 500);
  EXPECT_EQ(query.text("project_id", 100), std::nullopt);
  EXPECT_EQ(query.word("access_scope", "owned", {"owned", "accessible"}), "owned");
  EXPECT_EQ(query.integer("n", 7, 0, 9), 7);
  const std::string message = query.status().error().message;
  for (const char* part :
       {"limit: must be an integer from 1 to 500", "offset: must be an integer of at least 0",
        "project_id: must be text", "access_scope: must be one of owned, accessible", "n: must be"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  EXPECT_EQ(message.find("secret"), std::string::npos);
}

TEST(Query, InvalidIntegersAndTextAreRefused) {
  for (const char* query : {"n=", "n=+1", "n=0x1", "n=1.0", "n=99999999999999999999", "n=%ff", "n=1%"}) {
    QueryFields fields(query);
    fields.integer("n", 0, 0, 100);
    EXPECT_FALSE(fields.status().ok()) << query;
  }
  for (const char* query : {"t=%ff", "t=%", "t=a%0ab", "t=%7f", "t=aaaaaaaaaaa"}) {
    QueryFields fields(query);
    fields.text("t", 10);
    EXPECT_FALSE(fields.status().ok()) << query;
  }
}

}  // namespace
}  // namespace tuft::api
