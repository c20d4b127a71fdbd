// Prints what the telemetry store in a directory holds, one JSON object a line, for tests: tuft_store_dump DIRECTORY.
// The server that wrote it must have ended.
#include <cstdio>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "telemetry_store/store.h"

namespace {

using namespace tuft::telemetry_store;
using Json = nlohmann::json;

constexpr size_t kSpansMax = 100'000;
constexpr size_t kPage = 100;

void print(const Json& line) {
  std::puts(line.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

void print_trace(const Trace& trace) {
  for (const Span& span : trace.spans) {
    print({{"span", span.name},
           {"trace_id", span.trace_id},
           {"span_id", span.span_id},
           {"parent_id", span.parent_id},
           {"service", span.service},
           {"worker", span.worker},
           {"owner", span.owner},
           {"failed", span.failed}});
  }
}

void print_logs(const Store& store, const Viewer& viewer) {
  LogQuery query{.filter = {.time = {.from = 1}}, .page = {.limit = kPage}};
  while (true) {
    const auto page = store.logs(viewer, query);
    if (!page.ok()) return print({{"error", page.error().message}});
    for (const LogRecord& log : page->logs) {
      print({{"log", log.event}, {"trace_id", log.trace_id}, {"worker", log.worker}, {"owner", log.owner}});
    }
    if (page->next.empty()) return;
    query.page.cursor = page->next;
  }
}

void print_steps(const Store& store, const Viewer& viewer, const std::set<std::string>& runs) {
  for (const std::string& run : runs) {
    for (const RunStep& step : store.steps(viewer, run, 0, kPage)) {
      print({{"step", step.step},
             {"run", run},
             {"owner", step.owner},
             {"loss", step.loss},
             {"tokens", step.tokens},
             {"pass_seconds", step.pass_seconds},
             {"step_seconds", step.step_seconds}});
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const auto store = Store::open({.directory = arguments[1]}, tuft::system_clock());
  const Viewer viewer{.all = true};
  std::set<std::string> runs;
  PageOf page{.limit = kPage};
  while (true) {
    const auto traces = store->traces(viewer, {.time = {.from = 1}}, page);
    if (!traces.ok()) {
      print({{"error", traces.error().message}});
      return 1;
    }
    for (const TraceSummary& summary : traces->traces) {
      if (!summary.run.empty()) runs.insert(summary.run);
      const auto trace = store->trace(viewer, summary.trace_id, kSpansMax);
      if (trace.ok()) print_trace(*trace);
    }
    if (traces->next.empty()) break;
    page.cursor = traces->next;
  }
  print_logs(*store, viewer);
  print_steps(*store, viewer, runs);
  return 0;
}
