#include "app/tuft/terminal/commands.h"

#include <algorithm>
#include <cstdio>
#include <poll.h>
#include <utility>

#include "app/tuft/terminal/lists.h"
#include "app/tuft/terminal/opening.h"
#include "app/tuft/terminal/screen.h"
#include "app/tuft/terminal/trace_view.h"
#include "app/tuft/terminal/units.h"

namespace tuft::terminal {
namespace {

constexpr size_t kPageMax = 500;
constexpr size_t kFollowedBefore = 10;  // records that were there before --follow
constexpr Nanos kFollowPoll = kSecond;
constexpr size_t kPlainWidth = 0;  // not a terminal: as wide as it needs to be

size_t list_width() {
  return has_terminal() ? screen_size().columns : kPlainWidth;
}

Result<Query> query_of(const SearchOptions& search) {
  Query query;
  if (!search.from.empty()) {
    TUFT_ASSIGN(const std::string from, parse_point(search.from));
    query.add("from", from);
  }
  if (!search.until.empty()) {
    TUFT_ASSIGN(const std::string until, parse_point(search.until));
    query.add("until", until);
  }
  query.add("session", search.session);
  query.add("run", search.run);
  query.add("sampler", search.sampler);
  query.add("request", search.request);
  query.add("operation", search.operation);
  query.add("base_model", search.base_model);
  query.add("user", search.user);
  query.add("service", search.service);
  query.add("text", search.text);
  return query;
}

Result<Query> query_of(const TracesOptions& options) {
  TUFT_ASSIGN(Query query, query_of(options.search));
  const auto add_duration = [&query](const char* key, const std::string& text) -> Status {
    if (text.empty()) return {};
    TUFT_ASSIGN(const double micros, parse_duration(text));
    query.add(key, std::to_string(static_cast<int64_t>(micros)));
    return {};
  };
  TUFT_TRY(add_duration("min_duration", options.min_duration));
  TUFT_TRY(add_duration("max_duration", options.max_duration));
  query.add("name", options.name);
  query.add("status", options.status);
  return query;
}

Result<Query> query_of(const LogsOptions& options) {
  TUFT_ASSIGN(Query query, query_of(options.search));
  query.add("level", options.level);
  query.add("event", options.event);
  query.add("trace", options.trace);
  query.add("span", options.span);
  return query;
}

// Returns the fields `list` of all pages up to `limit`, and the last answer.
struct Pages {
  Json items = Json::array();
  Json last;
};
Result<Pages> read_pages(Api& api, const Query& query, const std::string& path, const char* list, size_t limit) {
  Pages pages;
  std::string cursor;
  while (pages.items.size() < limit) {
    Query page = query;
    page.add("limit", std::to_string(std::min(limit - pages.items.size(), kPageMax)));
    page.add("cursor", cursor);
    TUFT_ASSIGN(pages.last, api.get(page.target(path)));
    for (const Json& item : list_of(pages.last, list)) pages.items.push_back(item);
    std::string next = text_of(pages.last, "next");
    if (next.empty() || next == cursor || list_of(pages.last, list).empty()) break;
    cursor = std::move(next);
  }
  return pages;
}

void print_json(const Json& value) {
  std::printf("%s\n", safe_json(value).c_str());
}

void print_records(const Json& records, bool json) {
  for (const Json& record : records) {
    if (json) {
      print_json(record);
    } else {
      print({log_line(record)});
    }
  }
  std::fflush(stdout);
}

// Prints what comes until the program is ended by a signal or its output is closed.
int follow(Api& api, const LogsOptions& options, const Query& query, std::string newest) {
  bool answers = true;
  while (true) {
    ::poll(nullptr, 0, static_cast<int>(kFollowPoll / kMillisecond));
    Query next = query;
    next.add("after", newest);
    next.add("limit", std::to_string(kPageMax));
    Result<Json> answer = api.get(next.target("/api/v1/observe/logs"));
    if (!answer.ok()) {
      if (!is_retryable(answer.error().code)) return fail("logs", answer.error());
      if (answers) std::fprintf(stderr, "tuft logs: %s; trying again\n", visible(answer.error().message).c_str());
      answers = false;
      continue;
    }
    if (!answers) std::fprintf(stderr, "tuft logs: the server answers again\n");
    answers = true;
    Json records = list_of(*answer, "logs");
    if (newest.empty()) std::reverse(records.begin(), records.end());  // a page as without --follow
    print_records(records, options.json);
    if (std::ferror(stdout) != 0) return 0;
    if (std::string cursor = text_of(*answer, "newest"); !cursor.empty()) newest = std::move(cursor);
  }
}

bool is_trace_id(const std::string& id) {
  return id.size() == 32 && id.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

Result<std::unique_ptr<HttpClient>> open_client(const ServerOptions& options) {
  ClientOptions client;
  TUFT_ASSIGN(client.address, find_server(options.url, options.home));
  TUFT_ASSIGN(client.key, find_key());
  client.ca_file = options.ca_file;
  client.user_agent = options.user_agent;
  return HttpClient::create(std::move(client));
}

std::string address_text(const ServerOptions& options) {
  const Result<Address> address = find_server(options.url, options.home);
  return address.ok() ? address->text() : "";
}

int fail(const char* command, const Error& error) {
  std::fprintf(stderr, "tuft %s: %s\n", command, visible(error.message).c_str());
  return 1;
}

int run_traces(const TracesOptions& options) {
  const Result<Query> query = query_of(options);
  if (!query.ok()) return fail("traces", query.error()), 2;
  const auto client = open_client(options.server);
  if (!client.ok()) return fail("traces", client.error());
  const Result<Pages> pages = read_pages(**client, *query, "/api/v1/observe/traces", "traces", options.limit);
  if (!pages.ok()) return fail("traces", pages.error());
  if (options.json) {
    print_json({{"traces", pages->items}, {"next", field_of(pages->last, "next")}});
    return 0;
  }
  if (pages->items.empty()) {
    std::fprintf(stderr, "no trace meets the conditions; --from says how far back to look (default 1h)\n");
    return 0;
  }
  print(trace_list_lines(pages->items, list_width()));
  if (!text_of(pages->last, "next").empty()) {
    std::fprintf(stderr, "there are older traces; --limit %zu shows more\n", options.limit * 10);
  }
  return 0;
}

int run_trace(const TraceOptions& options) {
  if (!is_trace_id(options.id)) {
    fail("trace", invalid_argument("'" + options.id +
                                   "' is not the id of a trace: 32 digits of 0-9, a-f, as 'tuft "
                                   "traces' shows them"));
    return 2;
  }
  const auto client = open_client(options.server);
  if (!client.ok()) return fail("trace", client.error());
  const Result<Json> trace = (*client)->get("/api/v1/observe/traces/" + options.id);
  if (!trace.ok()) return fail("trace", trace.error());
  if (options.json) {
    print_json(*trace);
    return 0;
  }
  TraceViewOptions view;
  view.width = has_terminal() ? screen_size().columns : view.width;
  view.spans_max = options.spans_max;
  view.block_characters = has_utf8();
  print(trace_lines(*trace, view));
  return 0;
}

int run_workers(const WorkersOptions& options) {
  const auto client = open_client(options.server);
  if (!client.ok()) return fail("workers", client.error());
  const Result<Json> answer = (*client)->get("/api/v1/observe/workers");
  if (!answer.ok()) return fail("workers", answer.error());
  if (options.json) {
    print_json(*answer);
    return 0;
  }
  if (list_of(*answer, "workers").empty()) {
    std::fprintf(stderr, "no worker has joined; start one with tuft-worker --join\n");
    return 0;
  }
  print(worker_list_lines(list_of(*answer, "workers"), list_width()));
  return 0;
}

int run_logs(const LogsOptions& options) {
  const Result<Query> query = query_of(options);
  if (!query.ok()) return fail("logs", query.error()), 2;
  const auto client = open_client(options.server);
  if (!client.ok()) return fail("logs", client.error());
  const size_t limit = options.follow ? std::min(options.limit, kFollowedBefore) : options.limit;
  Result<Pages> pages = read_pages(**client, *query, "/api/v1/observe/logs", "logs", limit);
  if (!pages.ok()) return fail("logs", pages.error());
  // The server's pages are newest first; a log is read downwards.
  std::reverse(pages->items.begin(), pages->items.end());
  print_records(pages->items, options.json);
  if (options.follow) return follow(**client, options, *query, text_of(pages->last, "newest"));
  if (pages->items.empty()) {
    std::fprintf(stderr, "no log record meets the conditions; --from says how far back to look (default 1h)\n");
  }
  return 0;
}

}  // namespace tuft::terminal
