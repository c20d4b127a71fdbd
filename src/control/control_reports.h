// What the control plane reports through the telemetry of the process: the gauges of futures, dispatch queues, runs,
// checkpoints and records of samples; and to the workers, which traces are kept. The views of a server that stands by
// report nothing: several exist at a time, and what they show is the state of the server that leads.
#pragma once

#include <vector>

#include "base/clock.h"
#include "control/checkpoints/checkpoint_store.h"
#include "control/futures/future_store.h"
#include "control/futures/operation_budget.h"
#include "control/sampling/sample_records.h"
#include "control/sessions/sessions.h"
#include "control/training/run_table.h"
#include "control/workers/model_backend.h"
#include "telemetry/instrument.h"

namespace tuft::control {

// Reports as long as it exists, on the threads of the telemetry. At most one exists at a time. It knows more than six
// others because it only reads from each of them.
class ControlReports {
 public:
  struct Parts {
    const Clock& clock;
    const ModelBackends& backends;
    const Sessions& sessions;
    const OperationBudget& budget;
    FutureStore& futures;
    const CheckpointStore& checkpoints;
    const RunTable& runs;
    const SampleRecords& records;
  };
  explicit ControlReports(const Parts& parts);
  ~ControlReports();
  ControlReports(const ControlReports&) = delete;
  ControlReports& operator=(const ControlReports&) = delete;

 private:
  void observe(const telemetry::Observable& instrument, telemetry::Observable::Callback callback);
  void observe_futures();
  void observe_dispatch();
  void observe_runs();
  void observe_kept();

  const Parts parts_;
  std::vector<const telemetry::Observable*> observed_;
};

}  // namespace tuft::control
