#include "app/tuft/kept_telemetry.h"

#include "base/clock.h"
#include "control/observe/telemetry_feed.h"
#include "telemetry/export/outbox.h"

namespace tuft::app {
namespace {

constexpr Nanos kFillTime = 200 * kMillisecond;

}  // namespace

KeptTelemetry::KeptTelemetry(const config::TelemetryStoreConfig& config) {
  if (!config.enabled) return;
  telemetry_store::StoreOptions options;
  options.directory = config.directory;
  options.disk_bytes_max = config.disk_bytes_max;
  options.memory_bytes_max = config.memory_bytes_max;
  options.age_max = config.age_max_seconds * kSecond;
  options.owner_of = [this](std::string_view session) { return owner_of(session); };
  store_ = telemetry_store::Store::open(std::move(options), system_clock());
}

void KeptTelemetry::ask_for_owners(const control::ControlPlane* plane) {
  MutexLock lock(mutex_);
  plane_ = plane;
}

std::string KeptTelemetry::owner_of(std::string_view session) {
  MutexLock lock(mutex_);
  return plane_ == nullptr ? std::string() : plane_->owner_of(session);
}

void KeptTelemetry::close() {
  if (store_ == nullptr) return;
  telemetry::fill_outbox(kFillTime);
  control::move_outbox(*store_);
  store_.reset();
}

}  // namespace tuft::app
