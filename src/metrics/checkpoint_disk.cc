#include "metrics/checkpoint_disk.h"

#include <utility>

#include "metrics/training.h"
#include "telemetry/host/machine.h"

namespace tuft::metrics {

void observe_checkpoint_disk(std::filesystem::path directory) {
  training().checkpoint_disk_usage.set_callback(
      [directory = std::move(directory)](const telemetry::Observable::Observe& observe) {
        const auto space = telemetry::internal::read_disk_space(directory);
        if (!space) return;
        observe(static_cast<double>(space->used), {{"state", "used"}});
        observe(static_cast<double>(space->free), {{"state", "free"}});
      });
}

}  // namespace tuft::metrics
