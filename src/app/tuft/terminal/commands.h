// The commands `tuft top`, `tuft workers`, `tuft traces`, `tuft trace` and `tuft logs`. Each asks the observe API of a
// server, prints to the standard output, and returns the exit status of the program: 0; 1 after an error, which it
// prints in one line; 2 if an argument is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace tuft::terminal {

struct ServerOptions {
  std::string url;                // empty: see find_server()
  std::filesystem::path ca_file;  // see ClientOptions
  std::filesystem::path home;     // of a server on this machine
  std::string user_agent;
};

// The conditions of a search, as written on the command line. Empty ones are none.
struct SearchOptions {
  std::string session, run, sampler, request, operation, base_model, user, service, text, from, until;
};

struct TracesOptions {
  ServerOptions server;
  SearchOptions search;
  std::string name, status, min_duration, max_duration;
  size_t limit = 20;
  bool json = false;
};
int run_traces(const TracesOptions& options);

struct TraceOptions {
  ServerOptions server;
  std::string id;
  size_t spans_max = 200;
  bool json = false;
};
int run_trace(const TraceOptions& options);

struct LogsOptions {
  ServerOptions server;
  SearchOptions search;
  std::string level, event, trace, span;
  size_t limit = 50;
  bool follow = false;
  bool json = false;
};
int run_logs(const LogsOptions& options);

struct WorkersOptions {
  ServerOptions server;
  bool json = false;
};
int run_workers(const WorkersOptions& options);

struct TopOptions {
  ServerOptions server;
  double interval = 1.5;  // seconds between refreshes
  bool once = false;
};
int run_top(const TopOptions& options);

}  // namespace tuft::terminal
