// Brings the telemetry of the server and of its workers into the embedded store.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "control/workers/model_backend.h"
#include "telemetry_store/store.h"

namespace tuft::control {

// Moves what the outbox of this process holds (telemetry/export/outbox.h) into the store. For the one reader that the
// outbox has: the feed, and after its end whoever closes the store.
void move_outbox(telemetry_store::Store& store);

// A thread takes the server's own spans and log records every 250 ms, those of each worker every 500 ms, and the
// metrics of all of them every 5 s. It adds nothing to the time of requests: the answers of workers wait for it, one of
// each. A worker keeps what it has recorded until the next request confirms it, so a lost answer loses nothing; what is
// there twice is left out. Times are those of the system's clock.
//
// Thread-safe. `backends` and `store` must outlive it.
class TelemetryFeed {
 public:
  TelemetryFeed(const ModelBackends& backends, telemetry_store::Store& store);
  ~TelemetryFeed();
  TelemetryFeed(const TelemetryFeed&) = delete;
  TelemetryFeed& operator=(const TelemetryFeed&) = delete;

  // Waits until all that this process and the workers have recorded until now can be found in the store, with its
  // owners. Returns false after `budget`, or if a worker did not answer.
  bool fetch_rest(Nanos budget);

 private:
  struct Mail;
  struct WorkerState {
    uint64_t incarnation = 0;
    uint64_t confirmed = 0;  // the last batch that was added in this incarnation
    bool asked = false;      // an answer will come
    bool all_asked = false;  // ... with all that was recorded before
    bool goes_on = false;    // there is probably more
    int halvings = 0;        // of what an answer may have, because larger ones came too late
    bool rest_wanted = false;
  };

  void run();
  void wait(Nanos until);
  void take_mail();
  void ask_workers(bool due);
  void ask(size_t index);
  void ask_metrics();
  void note_rest();

  const ModelBackends& backends_;
  telemetry_store::Store& store_;
  const std::shared_ptr<Mail> mail_;
  // Confined to the thread.
  std::vector<WorkerState> workers_;
  uint64_t rest_begun_ = 0;
  uint64_t rest_done_ = 0;
  std::thread thread_;
};

}  // namespace tuft::control
