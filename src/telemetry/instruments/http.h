// What the HTTP edge records. Part of Metrics.
#pragma once

#include "telemetry/instrument.h"

namespace tuft::telemetry {

struct HttpInstruments {
  Histogram http_server_request_duration{
      {.name = "http.server.request.duration",
       .unit = "s",
       .description = "Time from the request's first byte to the response's last",
       .labels = {"http.request.method", "http.route", "http.response.status_code", "url.scheme", "error.type"},
       .bounds = bounds_http()}};
  UpDownCounter http_server_active_requests{{.name = "http.server.active_requests",
                                             .unit = "{request}",
                                             .description = "Requests being answered",
                                             .labels = {"http.request.method", "url.scheme"}}};
  Histogram http_server_request_body_size{{.name = "http.server.request.body.size",
                                           .unit = "By",
                                           .description = "Size of request bodies as they came over the wire",
                                           .labels = {"http.route"},
                                           .bounds = bounds_body_bytes()}};
  Histogram http_server_response_body_size{{.name = "http.server.response.body.size",
                                            .unit = "By",
                                            .description = "Size of response bodies",
                                            .labels = {"http.route"},
                                            .bounds = bounds_body_bytes()}};
  ObservableGauge http_connections{{.name = "tuft.http.connections",
                                    .unit = "{connection}",
                                    .description = "Open connections, by state (active, idle)",
                                    .labels = {"state"}}};
  ObservableGauge http_receiving_bytes{
      {.name = "tuft.http.receiving.bytes",
       .unit = "By",
       .description =
           "Memory set aside for request bodies that are being received or read; short ones are not counted"}};
  Counter http_parse_errors{{.name = "tuft.http.parse_errors",
                             .unit = "{request}",
                             .description = "Requests and bodies that could not be read",
                             .labels = {"reason"}}};
  Counter http_rejected{{.name = "tuft.http.rejected",
                         .unit = "{request}",
                         .description = "Requests refused at the edge, by reason",
                         .labels = {"reason"}}};
  Counter auth_failures{{.name = "tuft.auth.failures",
                         .unit = "{request}",
                         .description = "Requests without a valid API key (missing, unknown)",
                         .labels = {"reason"}}};
  Histogram http_deserialize_duration{{.name = "tuft.http.deserialize.duration",
                                       .unit = "s",
                                       .description = "Decoding of a request body (json, protobuf)",
                                       .labels = {"http.route", "format"},
                                       .bounds = bounds_operation()}};
  Histogram http_serialize_duration{{.name = "tuft.http.serialize.duration",
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
};

}  // namespace tuft::telemetry
