#include "app/tuft_worker/serve.h"

#include <cstdio>
#include <utility>

#include "app/tuft_worker/end_signal.h"
#include "app/tuft_worker/secret_variable.h"
#include "app/tuft_worker/served_model.h"
#include "app/tuft_worker/worker_process.h"
#include "app/tuft_worker/worker_telemetry.h"
#include "telemetry/log.h"
#include "telemetry/telemetry.h"

namespace tuft::app {
namespace {

Status run_service(const WorkerFlags& flags, const EndSignal& end) {
  TUFT_ASSIGN(LoadedModel model, load_model(flags));
  if (end.come()) return {};
  TUFT_ASSIGN(const auto served, ServedModel::start(flags, std::move(model)));
  end.wait();
  end_service(*served);
  return {};
}

Status set_bucket(WorkerFlags& flags, const std::string& json) {
  TUFT_ASSIGN(flags.bucket, bucket::settings_from_json(json));
  return {};
}

}  // namespace

int serve(const WorkerFlags& given) {
  WorkerFlags flags = given;
  EndSignal end(0, kEndGrace);
  Status status = tie_to_parent(flags.parent_pid);
  if (status.ok()) status = start_logging(flags);
  if (status.ok()) {
    const auto config = take_telemetry_config(flags.model_name);
    const std::string bucket = take_variable(bucket::kBucketVariable);
    status = config.ok() ? start_telemetry(*config) : Status(config.error());
    if (status.ok() && !bucket.empty()) status = set_bucket(flags, bucket);
  }
  if (!status.ok()) {
    std::fprintf(stderr, "tuft-worker: %s\n", status.error().message.c_str());
    return 1;
  }
  return end_process(flags, run_service(flags, end));
}

}  // namespace tuft::app
