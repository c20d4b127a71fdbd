// Which routes an I/O thread may serve. It serves the connections of many users, so a handler that takes long delays
// all of them: a list of 1,000 models, asked for over and over by one user, raised the heartbeats of others from
// milliseconds to a second.
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "api/routing/router.h"

namespace tuft::api {
namespace {

// Why the cost of a handler does not grow with what its user has: its sessions, runs, samplers, checkpoints and
// results. A body above kSmallBody is work whatever its route.
constexpr std::string_view kConstant = "a constant, or what the configuration says";
constexpr std::string_view kOneLookup = "one object, found by its id; the answer has no texts of the user's";
constexpr std::string_view kOneOperation = "one operation of a short body is put into a queue";
constexpr std::string_view kElsewhere = "another thread does the work, and this one waits for its answer";
constexpr std::string_view kStoredBytes = "bytes that are there already, sent without a copy";

struct Brief {
  Method method;
  std::string_view pattern;
  std::string_view why;
};

constexpr Brief kBrief[] = {
    {Method::kGet, "/api/v1/healthz", kConstant},
    {Method::kGet, "/api/v1/get_server_capabilities", kConstant},
    {Method::kPost, "/api/v1/client/config", kConstant},
    {Method::kPost, "/api/v1/client/dynamic_config", kConstant},
    {Method::kPost, "/api/v1/telemetry", "100 events, and a user has so many bytes of them in a minute"},
    {Method::kGet, "/metrics", kElsewhere},
    {Method::kGet, "/openapi.json", kConstant},
    {Method::kGet, "/docs", kConstant},
    {Method::kPost, "/api/v1/session_heartbeat", kOneLookup},
    {Method::kPost, "/api/v1/auth/token", kConstant},
    {Method::kGet, "/api/v1/auth/apikey/me", kConstant},
    {Method::kDelete, "/api/v1/auth/apikey/me", kConstant},
    {Method::kDelete, "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}", kElsewhere},
    {Method::kPost, "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/publish", kElsewhere},
    {Method::kDelete, "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/publish", kElsewhere},
    {Method::kPut, "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/ttl", kElsewhere},
    {Method::kPost, "/api/v1/copy_weights", kElsewhere},
    {Method::kGet, "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/archive", kOneLookup},
    {Method::kGet, "/api/v1/training_runs/{run_id}/checkpoints/external_weights/{name}/external_weights_urls",
     "one checkpoint, whose files are always as many"},
    {Method::kGet, "/api/v1/archives", kElsewhere},
    {Method::kPost, "/api/v1/get_info", kOneLookup},
    {Method::kPost, "/api/v1/weights_info", kOneLookup},
    {Method::kPost, "/api/v1/unload_model", kOneOperation},
    {Method::kPost, "/api/v1/forward", kOneOperation},
    {Method::kPost, "/api/v1/forward_backward", kOneOperation},
    {Method::kPost, "/api/v1/optim_step", kOneOperation},
    {Method::kPost, "/api/v1/save_weights", kOneOperation},
    {Method::kPost, "/api/v1/save_weights_for_sampler", kOneOperation},
    {Method::kPost, "/api/v1/save_weights_external", kOneOperation},
    {Method::kGet, "/api/v1/samplers/{sampler_id}", kOneLookup},
    {Method::kPost, "/api/v1/join_sampling_session", kOneLookup},
    {Method::kPost, "/api/v1/asample", kOneOperation},
    {Method::kGet, "/api/v1/sessions/{session_id}/trace_export", kElsewhere},
    {Method::kGet, "/api/v1/trace_exports", kStoredBytes},
    {Method::kPost, "/api/v1/retrieve_future",
     "JSON above 8 KiB of a result is streamed by work threads; else as stored"},
    {Method::kPost, "/api/v1/cancel_future", kOneLookup},
    {Method::kPost, "/api/v1/retrieve_futures", "SampleFeeds::kPageMax completions"},
    {Method::kGet, "/", kConstant},
    {Method::kGet, "/console", kStoredBytes},
    {Method::kGet, "/console/", kStoredBytes},
    {Method::kGet, "/console/login", kStoredBytes},
    {Method::kGet, "/console/logout", kStoredBytes},
    {Method::kGet, "/console/{path...}", kStoredBytes},
    {Method::kPost, "/console/login", kOneLookup},
    {Method::kPost, "/console/logout", kOneLookup},
    {Method::kPost, "/oai/api/v1/completions", kElsewhere},
    {Method::kPost, "/oai/api/v1/chat/completions", kElsewhere},
    {Method::kGet, "/oai/api/v1/models/{model...}", kOneLookup},
    {Method::kPost, "/v1/traces", "the records of a short body are counted; the telemetry store reads them elsewhere"},
    {Method::kPost, "/v1/logs", "as /v1/traces"},
    {Method::kPost, "/v1/metrics", "as /v1/traces"},
    {Method::kPost, "/api/v1/{unknown}", kOneOperation},
};

std::string name_of(Method method, std::string_view pattern) {
  return std::string(method_name(method)) + " " + std::string(pattern);
}

std::vector<Route> all_routes() {
  std::vector<Route> all(routes().begin(), routes().end());
  all.insert(all.end(), intake_routes().begin(), intake_routes().end());
  all.push_back(unknown_operation_route());
  return all;
}

// A route that is added without a thought of its cost fails here.
TEST(RouteCost, ARouteIsWorkOrSaysWhyItIsBrief) {
  std::set<std::string> brief;
  for (const Brief& one : kBrief) {
    EXPECT_FALSE(one.why.empty()) << one.pattern;
    EXPECT_TRUE(brief.insert(name_of(one.method, one.pattern)).second) << one.pattern << " is listed twice";
  }
  std::set<std::string> on_io_threads;
  for (const Route& route : all_routes()) {
    if (route.threads == Threads::kIo) on_io_threads.insert(name_of(route.method, route.pattern));
  }
  for (const std::string& route : on_io_threads) {
    EXPECT_TRUE(brief.contains(route)) << route << " runs on an I/O thread: set threads in routes.cc, or say in kBrief "
                                       << "why its cost does not grow with what a user has";
  }
  for (const std::string& listed : brief) {
    EXPECT_TRUE(on_io_threads.contains(listed)) << listed << " is work, or not a route: remove it from kBrief";
  }
}

// Work threads take turns between users, and users have a limit each: strangers are not told apart.
TEST(RouteCost, WorkHasAUser) {
  for (const Route& route : all_routes()) {
    if (route.threads == Threads::kIo) continue;
    EXPECT_TRUE(route.access == Access::kKey || route.access == Access::kBearer) << route.pattern;
  }
}

}  // namespace
}  // namespace tuft::api
