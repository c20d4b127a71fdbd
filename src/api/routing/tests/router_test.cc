#include "api/routing/router.h"

#include <gtest/gtest.h>

namespace tuft::api {
namespace {

constexpr Route kRoutes[] = {
    {.method = Method::kGet, .pattern = "/runs/{run}"},
    {.method = Method::kGet, .pattern = "/runs/newest"},
    {.method = Method::kDelete, .pattern = "/runs/{run}"},
    {.method = Method::kDelete, .pattern = "/runs/{run}/parts/{kind}/{name}"},
    {.method = Method::kPost, .pattern = "/runs/{run}/parts/{kind}/{name}/publish"},
    {.method = Method::kGet, .pattern = "/runs/{run}/parts/all/{name}"},
    {.method = Method::kPut, .pattern = "/runs/{run}/parts/{kind}/{name}"},
    {.method = Method::kGet, .pattern = "/models/{model...}"},
};

class Routed : public ::testing::Test {
 protected:
  std::string_view pattern(Method method, std::string_view target) {
    match = router.match(method, target);
    return match.route == nullptr ? std::string_view() : match.route->route.pattern;
  }

  const Router router{kRoutes};
  Match match;
};

TEST_F(Routed, LiteralSegmentIsPreferredToAParameter) {
  EXPECT_EQ(pattern(Method::kGet, "/runs/newest"), "/runs/newest");
  EXPECT_TRUE(match.parameters.empty());
  EXPECT_EQ(pattern(Method::kGet, "/runs/newest2"), "/runs/{run}");
  EXPECT_EQ(pattern(Method::kGet, "/runs/r/parts/all/n"), "/runs/{run}/parts/all/{name}");
  EXPECT_EQ(match.parameters, (std::vector<std::string>{"r", "n"}));
}

TEST_F(Routed, SeveralParametersAreInOrder) {
  EXPECT_EQ(pattern(Method::kPost, "/runs/a%3ab:c/parts/weights/0001/publish?x=/y/z"),
            "/runs/{run}/parts/{kind}/{name}/publish");
  EXPECT_EQ(match.parameters, (std::vector<std::string>{"a:b:c", "weights", "0001"}));
  EXPECT_EQ(pattern(Method::kPut, "/runs/a/parts/b/c"), "/runs/{run}/parts/{kind}/{name}");
  EXPECT_EQ(match.parameters, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(match.route->span_name.view(), "PUT /runs/{run}/parts/{kind}/{name}");
}

TEST_F(Routed, RestOfAPathIsOneParameter) {
  for (const char* path : {"/models/tinker%3A%2F%2Frun%2Fweights%2Fa", "/models/tinker://run/weights/a?x=/y"}) {
    EXPECT_EQ(pattern(Method::kGet, path), "/models/{model...}") << path;
    EXPECT_EQ(match.parameters, (std::vector<std::string>{"tinker://run/weights/a"})) << path;
  }
  EXPECT_EQ(pattern(Method::kGet, "/models/"), "");
  EXPECT_EQ(pattern(Method::kGet, "/models/a%0A"), "");
}

TEST_F(Routed, WrongMethodReturnsTheAllowedMethods) {
  EXPECT_EQ(pattern(Method::kPost, "/runs/a"), "");
  EXPECT_EQ(match.allow, "GET, HEAD, DELETE");
  EXPECT_EQ(pattern(Method::kGet, "/runs/a/parts/b/c"), "");
  EXPECT_EQ(match.allow, "DELETE, PUT");
  EXPECT_EQ(pattern(Method::kOther, "/runs/newest"), "");
  EXPECT_EQ(match.allow, "GET, HEAD");
}

TEST_F(Routed, UnknownPathsAllowNothing) {
  for (const char* path : {"/runs", "/runs/", "/runs//parts/a/b", "/runs/a/parts/b", "/runs/a/parts/b/c/d", "runs/a",
                           "/runs/a/", "/", "", "*", "//runs/a"}) {
    EXPECT_EQ(pattern(Method::kGet, path), "") << path;
    EXPECT_EQ(match.allow, "") << path;
  }
}

TEST_F(Routed, ParametersAreDecodedAndConfinedToOneSegment) {
  EXPECT_EQ(pattern(Method::kGet, "/runs/%41%3a#x"), "/runs/{run}");
  EXPECT_EQ(match.parameters.at(0), "A:");
  for (const char* path : {"/runs/a/b", "/runs/a%2fb", "/runs/%zz", "/runs/%4", "/runs/%", "/runs/%00", "/runs/%7f"}) {
    EXPECT_EQ(pattern(Method::kGet, path), "") << path;
  }
}

TEST(RouteTable, EachRouteExistsOnceWithAKnownMethod) {
  const Router router(routes());
  for (const Route& route : routes()) {
    EXPECT_NE(route.method, Method::kOther) << route.pattern;
    std::string target;
    for (const char c : route.pattern) target.push_back(c == '{' || c == '}' ? 'x' : c);
    const Match match = router.match(route.method, target);
    ASSERT_NE(match.route, nullptr) << route.pattern;
    EXPECT_EQ(match.route->route.handler, route.handler) << route.pattern;
  }
}

}  // namespace
}  // namespace tuft::api
