// A server that stands by: it waits until it leads, and meanwhile answers requests that only read.
#pragma once

#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "actor/supervisor.h"
#include "api/server.h"
#include "app/tuft/address_file.h"
#include "app/tuft/kept_views.h"
#include "app/tuft/key_file.h"
#include "base/mutex.h"
#include "base/result.h"
#include "config/config.h"
#include "control/control_plane.h"
#include "store/leadership.h"

namespace tuft::app {

// It reads the records of the leader again and again, and serves each time what they say (control::Persistence,
// open_view). Reading them takes at most a twentieth of its time and of the store's. While requests use as many former
// views as may be kept (KeptViews), it serves the newest one that it has.
class Standby {
 public:
  Standby(const config::ServerConfig& config, store::Leadership& leadership);
  // After it has stopped, it may be destroyed on another thread: it waits for the thread that reads, and its views hold
  // as many records as the store.
  ~Standby();
  Standby(const Standby&) = delete;
  Standby& operator=(const Standby&) = delete;

  // Reads the records for the first time and listens. `leader` is the address of the server that leads. Errors: those
  // of a start, for instance a configuration that is not that of the stored state.
  Status start(const std::string& leader);
  // The port at which it listens.
  uint16_t port() const { return server_->port(); }
  // Waits until this server leads and returns true, or returns false after a stop signal.
  bool wait();
  // Frees the port, and ends the reading of records: it does not go on at the store's cost. Can be called more than
  // once.
  void stop();

 private:
  Result<std::shared_ptr<control::ControlPlane>> read_records();
  void keep_reading();
  // Destroys the former views that no request uses any more. Returns whether there is room for another one.
  bool make_room() TUFT_EXCLUDES(mutex_);
  bool pause(Nanos time) TUFT_EXCLUDES(mutex_);
  void reload();
  void reload_changed_keys();
  void set_keys(std::map<std::string, std::string> keys) TUFT_EXCLUDES(mutex_);
  void adopt(const std::shared_ptr<control::ControlPlane>& view, Nanos read_at) TUFT_EXCLUDES(mutex_, facts_mutex_);
  api::StandbyFacts facts() const TUFT_EXCLUDES(facts_mutex_);

  const config::ServerConfig config_;  // with one worker for each base model
  store::Leadership& leadership_;
  KeyFile key_file_;  // in wait() its own thread has it, except at SIGHUP
  AddressFile address_file_;
  // One for each place of a worker. They are never started.
  std::vector<std::unique_ptr<actor::SupervisedActor>> actors_;
  std::unique_ptr<api::Server> server_;
  std::thread serving_;
  std::thread reading_;
  std::stop_source stop_;

  Mutex mutex_;
  CondVar stopped_;
  KeptViews views_ TUFT_GUARDED_BY(mutex_);
  mutable Mutex facts_mutex_;  // the only one that I/O threads take: many keys are given under the other one
  api::StandbyFacts facts_ TUFT_GUARDED_BY(facts_mutex_);
};

}  // namespace tuft::app
