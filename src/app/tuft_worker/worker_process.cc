#include "app/tuft_worker/worker_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "metrics/catalogue.h"
#include "rpc/protobuf_log.h"
#include "telemetry/log.h"

namespace tuft::app {

// The parent may have ended before prctl(), which then sends no signal.
Status tie_to_parent(int parent_pid) {
  if (parent_pid == 0) return {};
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() == parent_pid) return {};
  return failed_precondition("the process that started this worker has ended");
}

Status start_logging(const WorkerFlags& flags) {
  metrics::register_all();
  telemetry::LogOptions log;
  log.process = flags.model_name;
  TUFT_ASSIGN(log.level, telemetry::parse_severity(flags.log_level));
  if (flags.log_format != "text" && flags.log_format != "json") {
    return invalid_argument("--log-format must be text or json");
  }
  log.format = flags.log_format == "json" ? telemetry::LogFormat::kJson : telemetry::LogFormat::kText;
  telemetry::init_logging(log);
  rpc::take_protobuf_log([](std::string_view message) { telemetry::log_warning("protobuf.message", message); });
  return {};
}

Status start_telemetry(const telemetry::TelemetryConfig& config) {
  TUFT_TRY(telemetry::init_telemetry(config));
  telemetry::start_resource_metrics();
  return {};
}

int end_process(const WorkerFlags& flags, const Status& status) {
  if (!status.ok()) {
    telemetry::log_error("worker.load_failed", status.error().message, {{"tuft.base_model", flags.model_name}});
  }
  telemetry::shutdown_telemetry(kTelemetryGrace);
  telemetry::flush_logging();
  return status.ok() ? 0 : 1;
}

}  // namespace tuft::app
