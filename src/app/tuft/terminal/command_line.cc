#include "app/tuft/terminal/command_line.h"

#include <memory>

#include "app/tuft/terminal/commands.h"

namespace tuft::terminal {
namespace {

constexpr size_t kLimitMax = 10'000;
constexpr size_t kSpansMax = 100'000;

void add_server_flags(CLI::App& command, ServerOptions& options) {
  command.add_option("--url", options.url,
                     "address of the server [TUFT_URL; the server that runs here; http://127.0.0.1:10610]");
  command.add_option("--ca-file", options.ca_file, "PEM file with the authority of the server's certificate");
  command.footer("The API key is taken from TUFT_API_KEY, else from TINKER_API_KEY.");
}

void add_search_flags(CLI::App& command, SearchOptions& search) {
  command.add_option("--session", search.session, "id of a session");
  command.add_option("--run", search.run, "id of a training run");
  command.add_option("--sampler", search.sampler, "id of a sampling session");
  command.add_option("--request", search.request, "id of a request");
  command.add_option("--operation", search.operation, "forward_backward, optim_step, sample, ...");
  command.add_option("--base-model", search.base_model, "name of a base model");
  command.add_option("--user", search.user, "name of a user (for operators)");
  command.add_option("--service", search.service, "service.name, such as tuft");
  command.add_option("--text", search.text, "text that a name, an attribute or a log record contains");
  command.add_option("--from", search.from, "begin: 15m (before now), a date or time of RFC 3339 [1h]");
  command.add_option("--until", search.until, "end, in the same form [now]");
}

void add_traces(CLI::App& app, TracesOptions& options) {
  CLI::App* const command = app.add_subcommand("traces", "list traces of a server, newest first");
  add_server_flags(*command, options.server);
  add_search_flags(*command, options.search);
  command->add_option("--status", options.status, "ok or error")->check(CLI::IsMember({"ok", "error"}));
  command->add_option("--min-duration", options.min_duration, "for instance 50ms or 2s");
  command->add_option("--max-duration", options.max_duration, "for instance 50ms or 2s");
  command->add_option("--name", options.name, "name of a span, or its beginning and '*'");
  command->add_option("--limit", options.limit, "number of traces [20]")->check(CLI::Range(size_t{1}, kLimitMax));
  command->add_flag("--json", options.json, "print JSON");
}

void add_trace(CLI::App& app, TraceOptions& options) {
  CLI::App* const command = app.add_subcommand("trace", "show one trace: where its time went, its spans and logs");
  add_server_flags(*command, options.server);
  command->add_option("ID", options.id, "id of the trace, as 'tuft traces' shows it")->required();
  command->add_option("--spans", options.spans_max, "number of spans to show [200]")
      ->check(CLI::Range(size_t{1}, kSpansMax));
  command->add_flag("--json", options.json, "print JSON");
}

void add_logs(CLI::App& app, LogsOptions& options) {
  CLI::App* const command = app.add_subcommand("logs", "show log records of a server and its workers");
  add_server_flags(*command, options.server);
  add_search_flags(*command, options.search);
  command->add_flag("-f,--follow", options.follow, "go on with the records that come");
  command->add_option("--level", options.level, "the lowest level: debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  command->add_option("--event", options.event, "name of an event, or its beginning and '*'");
  command->add_option("--trace", options.trace, "id of a trace");
  command->add_option("--span", options.span, "id of a span");
  command->add_option("--limit", options.limit, "number of records [50]")->check(CLI::Range(size_t{1}, kLimitMax));
  command->add_flag("--json", options.json, "print one JSON object in each line");
}

void add_top(CLI::App& app, TopOptions& options) {
  CLI::App* const command = app.add_subcommand("top", "watch a server: workers, queues, users, sessions and runs");
  add_server_flags(*command, options.server);
  command->add_option("--interval", options.interval, "seconds between two looks [1.5]")->check(CLI::Range(0.5, 60.0));
  command->add_flag("--once", options.once, "print one picture and end");
}

void add_workers(CLI::App& app, WorkersOptions& options) {
  CLI::App* const command =
      app.add_subcommand("workers", "list the workers of a server: where they run, and how they are");
  add_server_flags(*command, options.server);
  command->add_flag("--json", options.json, "print JSON");
}

struct All {
  TopOptions top;
  WorkersOptions workers;
  TracesOptions traces;
  TraceOptions trace;
  LogsOptions logs;
};

}  // namespace

void add_commands(CLI::App& app, const std::filesystem::path& home, const std::string& version,
                  std::function<int()>& chosen) {
  const auto all = std::make_shared<All>();
  for (ServerOptions* server :
       {&all->top.server, &all->workers.server, &all->traces.server, &all->trace.server, &all->logs.server}) {
    server->home = home;
    server->user_agent = "tuft/" + version;
  }
  add_top(app, all->top);
  add_workers(app, all->workers);
  add_traces(app, all->traces);
  add_trace(app, all->trace);
  add_logs(app, all->logs);
  app.get_subcommand("top")->callback([all, &chosen] { chosen = [all] { return run_top(all->top); }; });
  app.get_subcommand("workers")->callback([all, &chosen] { chosen = [all] { return run_workers(all->workers); }; });
  app.get_subcommand("traces")->callback([all, &chosen] { chosen = [all] { return run_traces(all->traces); }; });
  app.get_subcommand("trace")->callback([all, &chosen] { chosen = [all] { return run_trace(all->trace); }; });
  app.get_subcommand("logs")->callback([all, &chosen] { chosen = [all] { return run_logs(all->logs); }; });
}

std::string advice_on_key_flag(std::string_view word) {
  const std::string_view name = word.substr(0, word.find('='));
  if (name != "--key" && name != "--api-key" && name != "--api_key" && name != "--token") return {};
  return "a key does not belong on the command line, where every user of the machine could read it; set TUFT_API_KEY";
}

}  // namespace tuft::terminal
