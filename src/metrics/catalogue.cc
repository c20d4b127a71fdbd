#include "metrics/catalogue.h"

#include "metrics/bucket.h"
#include "metrics/continuous_batching.h"
#include "metrics/engine.h"
#include "metrics/futures.h"
#include "metrics/http.h"
#include "metrics/leadership.h"
#include "metrics/observe.h"
#include "metrics/sampling.h"
#include "metrics/store.h"
#include "metrics/telemetry_store.h"
#include "metrics/tenants.h"
#include "metrics/training.h"
#include "metrics/workers.h"

namespace tuft::metrics {
namespace {

// Leaked: threads record until the process ends.
template <typename Area>
const Area& made_once() {
  static const Area& area = *new Area;
  return area;
}

}  // namespace

const BucketMetrics& bucket() {
  return made_once<BucketMetrics>();
}

const ContinuousBatchingMetrics& continuous_batching() {
  return made_once<ContinuousBatchingMetrics>();
}

const EngineMetrics& engine() {
  return made_once<EngineMetrics>();
}

const FutureMetrics& futures() {
  return made_once<FutureMetrics>();
}

const HttpMetrics& http() {
  return made_once<HttpMetrics>();
}

const LeadershipMetrics& leadership() {
  return made_once<LeadershipMetrics>();
}

const ObserveMetrics& observe() {
  return made_once<ObserveMetrics>();
}

const SamplingMetrics& sampling() {
  return made_once<SamplingMetrics>();
}

const StoreMetrics& store() {
  return made_once<StoreMetrics>();
}

const TelemetryStoreMetrics& telemetry_store() {
  return made_once<TelemetryStoreMetrics>();
}

const TenantMetrics& tenants() {
  return made_once<TenantMetrics>();
}

const TrainingMetrics& training() {
  return made_once<TrainingMetrics>();
}

const WorkerMetrics& workers() {
  return made_once<WorkerMetrics>();
}

void register_all() {
  bucket();
  continuous_batching();
  engine();
  futures();
  http();
  leadership();
  observe();
  sampling();
  store();
  telemetry_store();
  tenants();
  training();
  workers();
}

}  // namespace tuft::metrics
