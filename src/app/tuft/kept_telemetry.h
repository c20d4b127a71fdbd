// The embedded telemetry store of a server process, from before the control plane exists until after its end.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "config/config.h"
#include "control/control_plane.h"
#include "telemetry_store/store.h"

namespace tuft::app {

class KeptTelemetry {
 public:
  // Opens the store, or none if the configuration has none. What is wrong with its directory costs only the history:
  // the store says so in the log.
  explicit KeptTelemetry(const config::TelemetryStoreConfig& config);
  ~KeptTelemetry() { close(); }
  KeptTelemetry(const KeptTelemetry&) = delete;
  KeptTelemetry& operator=(const KeptTelemetry&) = delete;

  // Returns null if there is none, or after close().
  telemetry_store::Store* store() { return store_.get(); }
  // The control plane that knows the users of sessions, until it ends; null: none.
  void ask_for_owners(const control::ControlPlane* plane);
  // Keeps what this process has recorded until now, and closes the store. Requires that no control plane uses it.
  void close();

 private:
  std::string owner_of(std::string_view session);

  // Held while the control plane is asked, which takes only a lock of its own, so that it cannot end meanwhile.
  Mutex mutex_;
  const control::ControlPlane* plane_ TUFT_GUARDED_BY(mutex_) = nullptr;
  std::unique_ptr<telemetry_store::Store> store_;
};

}  // namespace tuft::app
