#include <string>
#include <utility>
#include <vector>

#include "app/tuft/terminal/server.h"
#include "app/tuft/terminal/top_view.h"

namespace tuft::terminal {
namespace {

constexpr std::string_view kApi = "/api/v1/observe/";

// Reads what every refresh needs.
Status read(Api& api, const std::string& target, Json& into) {
  TUFT_ASSIGN(into, api.get(target));
  return {};
}

// Reads what may be refused, or be off: then it is null. Returns false if the server does not answer any more.
bool read_if_allowed(Api& api, const std::string& target, Json& into) {
  Result<Json> answer = api.get(target);
  into = answer.ok() ? std::move(*answer) : Json();
  return answer.ok() ||
         (answer.error().code != ErrorCode::kUnavailable && answer.error().code != ErrorCode::kCancelled);
}

std::string path(std::string_view rest) {
  return std::string(kApi) + std::string(rest);
}

// One value for the last minute: the step is a little longer, because the server's minute ends a moment later.
std::string spans_of_last_minute(std::string_view function, std::string_view name, std::string_view by) {
  Query query;
  query.add("fn", function);
  query.add("by", by);
  query.add("name", name);
  query.add("from", "-60s");
  query.add("step", "61000000");
  return query.target(path("traces/series"));
}

std::string metric_of_last_minute(std::string_view name, std::string_view function, std::string_view where) {
  Query query;
  query.add("name", name);
  query.add("fn", function);
  query.add("by", "base_model");
  query.add("where", where);
  query.add("from", "-60s");
  query.add("step", "10000000");
  return query.target(path("metrics/query"));
}

std::string rows_of(TopView view) {
  switch (view) {
    case TopView::kOperations:
      return {};
    case TopView::kUsers:
      return path("tenants");
    case TopView::kSessions:
      return path("sessions?limit=200");
    case TopView::kRuns:
      return path("runs?limit=200");
  }
  return {};
}

// Reads a series of the operations, and adds that of the completions of the OpenAI API, which are none. Their spans are
// from the acceptance to the end: requests that submit and fetch them say nothing of their time.
bool read_operations(Api& api, std::string_view function, Json& into) {
  Json completions;
  if (!read_if_allowed(api, spans_of_last_minute(function, "future_store.execute_operation", "operation"), into) ||
      !read_if_allowed(api, spans_of_last_minute(function, "oai.proxy_inference", "name"), completions)) {
    return false;
  }
  for (const Json& series : list_of(completions, "series")) {
    if (!into.is_object()) into = {{"series", Json::array()}};
    into["series"].push_back({{"key", "completion (OpenAI)"}, {"points", list_of(series, "points")}});
  }
  return true;
}

bool read_optional(Api& api, TopData& data) {
  const std::pair<const char*, Json*> spans[] = {
      {"count", &data.counts}, {"errors", &data.errors}, {"p50", &data.p50}, {"p95", &data.p95}};
  for (const auto& [function, into] : spans) {
    if (!read_operations(api, function, *into)) return false;
  }
  std::vector<std::pair<std::string, Json*>> wanted = {{path("system"), &data.system}};
  if (flag_of(data.whoami, "operator")) {
    const std::string requests = "tuft.scheduler.requests";
    wanted.emplace_back(metric_of_last_minute("tuft.training.tokens", "rate", ""), &data.trained);
    wanted.emplace_back(metric_of_last_minute("tuft.sampling.tokens", "rate", "kind:decode"), &data.sampled);
    wanted.emplace_back(metric_of_last_minute(requests, "last", "state:running"), &data.running);
    wanted.emplace_back(metric_of_last_minute(requests, "last", "state:waiting"), &data.waiting);
  }
  if (std::string rows = rows_of(data.view); !rows.empty()) wanted.emplace_back(std::move(rows), &data.rows);
  for (const auto& [target, into] : wanted) {
    if (!read_if_allowed(api, target, *into)) return false;
  }
  return true;
}

Status read_all(Api& api, TopData& data) {
  TUFT_TRY(read(api, path("whoami"), data.whoami));
  TUFT_TRY(read(api, path("overview"), data.overview));
  (void)read_optional(api, data);  // without the rest there are dashes
  return {};
}

}  // namespace

TopData read_top(Api& api, TopView view, const TopData& before) {
  TopData data;
  data.view = view;
  const Status status = read_all(api, data);
  if (status.ok()) return data;
  TopData kept = before;
  kept.problem = status.error().message;
  kept.is_final = !is_retryable(status.error().code) && status.error().code != ErrorCode::kInternal;
  return kept;
}

}  // namespace tuft::terminal
