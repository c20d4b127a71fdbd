// The tools: what they are called, what they take and give, and what they do.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "mcp/arguments.h"
#include "mcp/json.h"
#include "mcp/protocol.h"

namespace tuft::mcp {

// Which arguments that several tools have in common a tool takes beside its own.
enum class Takes : uint8_t { kOwn, kTimes, kKeysAndTimes };

struct Tool {
  std::string_view name;
  std::string_view title;
  std::string_view description;
  Takes takes = Takes::kOwn;
  std::string_view input_schema;   // JSON: its own properties, and what is required
  std::string_view output_schema;  // JSON: the same of the result
  // Reads its arguments, ends with Arguments::finish(), and asks. The result is an object.
  Result<Json> (*call)(const Caller& caller, Arguments& arguments) = nullptr;
};

// Return whole JSON schemas (2020-12). Arguments that are not in it are refused.
Json input_schema(const Tool& tool);
Json output_schema(const Tool& tool);

// In the order of tools/list. Static.
std::span<const Tool> tools();
const Tool* find_tool(std::string_view name);

// ---- tools about telemetry (telemetry_tools.cc)
Result<Json> find_traces(const Caller& caller, Arguments& arguments);
Result<Json> get_trace(const Caller& caller, Arguments& arguments);
Result<Json> search_logs(const Caller& caller, Arguments& arguments);
Result<Json> list_metrics(const Caller& caller, Arguments& arguments);
Result<Json> query_metric(const Caller& caller, Arguments& arguments);
// ---- tools about things (thing_tools.cc)
Result<Json> list_runs(const Caller& caller, Arguments& arguments);
Result<Json> run_curve(const Caller& caller, Arguments& arguments);
Result<Json> list_tenants(const Caller& caller, Arguments& arguments);
Result<Json> server_status(const Caller& caller, Arguments& arguments);

}  // namespace tuft::mcp
