// Metrics of the HTTP server, of the check of API keys, and of the reports of SDK clients.
#pragma once

#include "metrics/definition.h"

namespace tuft::metrics {

struct HttpMetrics {
  Histogram server_request_duration{
      {.name = "http.server.request.duration",
       .unit = "s",
       .description = "Time from the request's first byte to the response's last",
       .labels = {"http.request.method", "http.route", "http.response.status_code", "url.scheme", "error.type"},
       .bounds = bounds_http()}};
  UpDownCounter server_active_requests{{.name = "http.server.active_requests",
                                        .unit = "{request}",
                                        .description = "Requests being answered",
                                        .labels = {"http.request.method", "url.scheme"}}};
  Histogram server_request_body_size{{.name = "http.server.request.body.size",
                                      .unit = "By",
                                      .description = "Size of request bodies as received",
                                      .labels = {"http.route"},
                                      .bounds = bounds_body_bytes()}};
  Histogram server_response_body_size{{.name = "http.server.response.body.size",
                                       .unit = "By",
                                       .description = "Size of response bodies",
                                       .labels = {"http.route"},
                                       .bounds = bounds_body_bytes()}};
  ObservableGauge connections{{.name = "tuft.http.connections",
                               .unit = "{connection}",
                               .description = "Open connections, by state (active, idle)",
                               .labels = {"state"}}};
  ObservableGauge receiving_bytes{
      {.name = "tuft.http.receiving.bytes",
       .unit = "By",
       .description =
           "Memory set aside for request bodies that are being received or read; short ones are not counted"}};
  ObservableGauge sending_bytes{
      {.name = "tuft.http.sending.bytes",
       .unit = "By",
       .description = "Memory of answers that wait until their clients have read them; short ones are not counted"}};
  Counter parse_errors{{.name = "tuft.http.parse_errors",
                        .unit = "{request}",
                        .description = "Requests and bodies that could not be read",
                        .labels = {"reason"}}};
  Counter rejected{{.name = "tuft.http.rejected",
                    .unit = "{request}",
                    .description = "Requests refused by the HTTP server, by reason",
                    .labels = {"reason"}}};
  Counter auth_failures{{.name = "tuft.auth.failures",
                         .unit = "{request}",
                         .description =
                             "Requests without a valid API key (missing, unknown), and loads with an unknown "
                             "weights_access_token (token)",
                         .labels = {"reason"}}};
  Histogram turn_wait_duration{
      {.name = "tuft.http.turn_wait.duration",
       .unit = "s",
       .description =
           "Time that a request waited for its turn on a busy I/O thread; one that has its turn at once is not counted",
       .bounds = bounds_operation()}};
  Histogram deserialize_duration{{.name = "tuft.http.deserialize.duration",
                                  .unit = "s",
                                  .description = "Decoding of a request body (json, protobuf)",
                                  .labels = {"http.route", "format"},
                                  .bounds = bounds_operation()}};
  Histogram serialize_duration{{.name = "tuft.http.serialize.duration",
                                .unit = "s",
                                .description = "Encoding of a response body (json, protobuf)",
                                .labels = {"http.route", "format"},
                                .bounds = bounds_operation()}};
  Histogram client_roundtrip_duration{{.name = "tuft.client.roundtrip.duration",
                                       .unit = "s",
                                       .description = "Submission of an operation as the SDK measured it",
                                       .labels = {"operation_type"},
                                       .bounds = bounds_http()}};
  Counter client_events{
      {.name = "tuft.client.events",
       .unit = "{event}",
       .description = "Events that SDK clients reported, by name (a known one, or other) and severity",
       .labels = {"event", "severity"}}};
  Counter client_events_dropped{
      {.name = "tuft.client.events.dropped",
       .unit = "{event}",
       .description = "Events of SDK clients that were dropped because of a limit (count, bytes)",
       .labels = {"reason"}}};
};

const HttpMetrics& http();

}  // namespace tuft::metrics
