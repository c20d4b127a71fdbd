#include "api/handlers/client_telemetry.h"
#include "api/handlers/handlers.h"
#include "api/json/json_writer.h"
#include "api/routing/metrics_page.h"
#include "api/routing/query.h"
#include "telemetry/exposition.h"

namespace tuft::api {
namespace {

constexpr Nanos kMetricsTimeout = 1500 * kMillisecond;  // over rpc::kCollectTimeout

// Lists only the flags of features that this server has, because clients rely on each of them.
constexpr std::string_view kClientConfig =
    R"({"pjwt_auth_enabled":false,"credential_default_source":"api_key","parallel_fwdbwd_chunks":true,)"
    R"("proto_compress_fwdbwd":true,"proto_write_fwdbwd":false,"fwdbwd_max_chunk_len":1024,)"
    R"("fwdbwd_max_chunk_bytes_count":5000000,"sample_max_concurrent_requests":2000,"use_pyqwest_transport":true,)"
    R"("create_model_via_load_weights":true,"sample_no_retries":false,"sample_use_retrieve_futures":true,)"
    R"("sample_join_sampling_session":true,"custom_loss_server_side":true})";

}  // namespace

// A load balancer that should send requests to the leader only asks with ?role=leader.
Result<Answer> handle_healthz(Exchange& exchange) {
  QueryFields query(exchange.query);
  const bool wants_leader = query.word("role", "any", {"any", "leader"}) == "leader";
  TUFT_TRY(query.status());
  const bool ready = !exchange.stands_by && exchange.control.ready();
  std::string body = std::string(R"({"status":"ok","ready":)") + (ready ? "true" : "false") + R"(,"role":)" +
                     (exchange.stands_by ? R"("standby"})" : R"("leader"})");
  return Answer(json_response(std::move(body), wants_leader && exchange.stands_by ? 503 : 200));
}

Result<Answer> handle_server_capabilities(Exchange& exchange) {
  JsonWriter json;
  json.begin_object().key("supported_models").begin_array();
  for (const control::SupportedModel& model : exchange.control.supported_models()) {
    json.begin_object().key("model_name").string(model.model_name);
    json.key("max_context_length").integer(model.max_context_length);
    json.key("capabilities").begin_array();
    if (model.training) json.string("training");
    if (model.sampling) json.string("sampling");
    json.end_array();
    // SDKs from 0.26 on read this field.
    json.key("trainable").boolean(model.training).key("sampleable").boolean(model.sampling).end_object();
  }
  json.end_array().end_object();
  return json_answer(std::move(json).take());
}

Result<Answer> handle_client_config(Exchange&) {
  return json_answer(std::string(kClientConfig));
}

Result<Answer> handle_dynamic_config(Exchange&) {
  return json_answer(R"({"refresh_interval_sec":300,"sample_cancel_enabled":true})");
}

Result<Answer> handle_metrics(Exchange& exchange) {
  const telemetry::ExpositionFormat format = telemetry::negotiate_format(exchange.headers.accept);
  AwaitResponse later;
  later.limit = kMetricsTimeout;
  later.start = [&control = exchange.control, page = exchange.metrics_page,
                 format](std::function<void(Result<Response>)> done) {
    control.collect_worker_metrics(
        [page, format, done = std::move(done)](std::vector<telemetry::WorkerMetrics> workers) {
          const bool taken = page->render(format, std::move(workers), [format, done](std::string text) {
            if (text.empty()) return done(unavailable("the metrics could not be written"));
            Response response;
            response.content_type = telemetry::content_type(format);
            response.body = std::move(text);
            done(std::move(response));
          });
          if (!taken) done(unavailable("too many scrapers wait for the metrics; try again"));
        });
  };
  return Answer(std::move(later));
}

Result<Answer> handle_telemetry(Exchange& exchange) {
  static ClientEventBudget budget;  // one per process: its limits hold for a user over all connections
  record_client_events(exchange, budget);
  return json_answer(R"({"status":"accepted"})");
}

}  // namespace tuft::api
