// The overview, runs, samplers, sessions and tenants, as the console shows them.
#include <utility>

#include "api/handlers/handlers.h"
#include "api/handlers/observe_query.h"
#include "api/json/observe_json.h"
#include "control/observe/observer.h"

namespace tuft::api {
namespace {

Status no_parameters(const Exchange& exchange) {
  QueryFields query(exchange.query);
  query.only({});
  return query.status();
}

Result<control::Part> part_of(const Exchange& exchange) {
  QueryFields query(exchange.query);
  query.only({"limit", "cursor"});
  const control::Part part = read_part(query);
  TUFT_TRY(query.status());
  return part;
}

}  // namespace

Result<Answer> handle_observe_overview(Exchange& exchange) {
  TUFT_TRY(no_parameters(exchange));
  return observed_answer(overview_json(exchange.control.observer().overview(exchange.user), server_version()));
}

Result<Answer> handle_observe_runs(Exchange& exchange) {
  TUFT_ASSIGN(const control::Part part, part_of(exchange));
  return observed_answer(runs_json(exchange.control.observer().runs(exchange.user, part)));
}

Result<Answer> handle_observe_run(Exchange& exchange) {
  TUFT_TRY(no_parameters(exchange));
  const control::RunId run(exchange.path_parameters[0]);
  TUFT_ASSIGN(const control::RunDetails details, exchange.control.observer().run(exchange.user, run));
  return observed_answer(run_json(details));
}

Result<Answer> handle_observe_samplers(Exchange& exchange) {
  TUFT_ASSIGN(const control::Part part, part_of(exchange));
  return observed_answer(samplers_json(exchange.control.observer().samplers(exchange.user, part)));
}

Result<Answer> handle_observe_sessions(Exchange& exchange) {
  TUFT_ASSIGN(const control::Part part, part_of(exchange));
  return observed_answer(sessions_json(exchange.control.observer().sessions(exchange.user, part)));
}

Result<Answer> handle_observe_tenants(Exchange& exchange) {
  TUFT_TRY(no_parameters(exchange));
  return observed_answer(tenants_json(exchange.control.observer().tenants(exchange.user)));
}

Result<Answer> handle_observe_workers(Exchange& exchange) {
  TUFT_TRY(no_parameters(exchange));
  return observed_answer(workers_json(exchange.control.observer().workers(exchange.user)));
}

}  // namespace tuft::api
