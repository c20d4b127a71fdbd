// OTLP over HTTP from users' own programs, on the port of the intake.
#include <utility>

#include "api/handlers/handlers.h"
#include "control/observe/intake.h"

namespace tuft::api {
namespace {

Result<Answer> take(Exchange& exchange, control::IntakeSignal signal) {
  Response response;
  TUFT_ASSIGN(response.body, exchange.control.intake().take(exchange.user, signal, std::move(exchange.body)));
  response.content_type = kProtobufType;
  return Answer(std::move(response));
}

}  // namespace

Result<Answer> handle_otlp_traces(Exchange& exchange) {
  return take(exchange, control::IntakeSignal::kTraces);
}

Result<Answer> handle_otlp_logs(Exchange& exchange) {
  return take(exchange, control::IntakeSignal::kLogs);
}

Result<Answer> handle_otlp_metrics(Exchange& exchange) {
  return take(exchange, control::IntakeSignal::kMetrics);
}

}  // namespace tuft::api
