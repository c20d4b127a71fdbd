// The workers that join: who may, and which of them serves a base model.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "actor/worker_rows.h"
#include "actor/worker_source.h"
#include "base/mutex.h"
#include "base/result.h"
#include "join/listener.h"
#include "telemetry/trace.h"

namespace tuft::actor {

// A base model that workers may join.
struct JoinableModel {
  std::string base_model;
  std::string config_sha256;       // of its config.json, in hexadecimal
  std::vector<std::string> flags;  // of tuft-worker
};

struct RegistryOptions {
  std::string version;            // of this server; a worker must have the same
  std::string telemetry;          // the telemetry configuration of the workers as JSON
  std::string proof_file, proof;  // see JoinResponse, as for the next
  std::string bucket;             // secret: never print it
  std::vector<JoinableModel> models;
  int standbys_max = 64;  // of each base model
  uint64_t epoch = 0;     // see JoinResponse
  Nanos keep = 0;         // how long a worker keeps what it holds after its connection has ended
  // For so long after its connection ended, only the same worker gets its place, if it comes back with its adapters;
  // and after the start, if `expects_holders`, only one that holds some.
  Nanos patience = kSecond;
  bool expects_holders = false;
};

// The first workers that join for a base model serve it, as many as it has sources; further ones stand by, with the
// weights in memory. When one is gone, its place waits a while for it to come back with its adapters. Then another one
// takes it: one with adapters first, or else the one that has waited longest of those that have read their weights.
// Thread-safe. Must outlive the sources.
class WorkerRegistry final : public join::Host {
 public:
  explicit WorkerRegistry(RegistryOptions options);
  ~WorkerRegistry() override;

  // Returns where the lives of a worker of the base model come from; one call for each worker that is to serve it. The
  // rows are those of all. Requires that `base_model` is one of the options.
  std::unique_ptr<WorkerSource> source(const std::string& base_model);
  std::shared_ptr<WorkerRows> rows(const std::string& base_model) const;

  // Disconnects the workers that stand by. From now on none joins.
  void close();

  worker::v1::JoinResponse admit(const worker::v1::JoinRequest& request, const std::string& address) override;
  std::function<void(join::End)> connected(const std::string& worker_id,
                                           std::unique_ptr<join::Connection> connection) override;
  void gave_up(const std::string& worker_id) override;
  void refused(std::string_view result, const std::string& address) override;

 private:
  struct Place;  // a base model
  class Source;
  // A worker between its request and its connection.
  struct Joining {
    std::shared_ptr<Place> place;
    WorkerRow row;
    telemetry::Span span;
    bool holds_adapters = false;
  };

  worker::v1::JoinResponse accept(const worker::v1::JoinRequest& request, const std::string& address,
                                  const std::shared_ptr<Place>& place);
  Status check(const worker::v1::JoinRequest& request, const Place& place) const;

  const RegistryOptions options_;
  std::map<std::string, std::shared_ptr<Place>, std::less<>> places_;
  Mutex mutex_;
  Nanos next_warning_ TUFT_GUARDED_BY(mutex_) = 0;                            // about a connection that failed
  std::unordered_map<std::string, Joining> joining_ TUFT_GUARDED_BY(mutex_);  // by worker id
};

}  // namespace tuft::actor
