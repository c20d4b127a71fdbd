// One supported model: its configuration, the actor that runs it, and the actor's description of itself.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "actor/model_actor.h"
#include "base/mutex.h"
#include "config/config.h"
#include "control/queues/dispatch_queue.h"
#include "control/workers/model_instruments.h"

namespace tuft::control {

// Operations wait for a worker up to this time before they fail with kUnavailable "worker_starting".
inline constexpr Nanos kWorkerWait = 60 * kSecond;

// Returns the number of training operations, one for each run, that may be at the worker at once: enough requests of 32
// tokens to fill the next four passes. Many at once delay nobody, because the worker shares its passes fairly between
// users, by tokens.
inline int64_t training_slots(const config::ModelConfig& config) {
  return std::max<int64_t>(16, int64_t{4} * config.train_batch_tokens / 32);
}
// The number of sequences that may be at the worker at once: those that its sampler runs, and some to take their place.
inline constexpr int64_t kSamplingSlots = 320;

// Thread-safe.
// What a base model has trained since the server was started.
struct TrainedTotals {
  int64_t tokens = 0;
  int64_t steps = 0;  // of the optimizer
};

class ModelBackend {
 public:
  ModelBackend(config::ModelConfig config, actor::ModelActor& actor)
      : config_(std::move(config)),
        actor_(actor),
        instruments_(config_.model_name),
        training_queue_(training_slots(config_)) {}

  const config::ModelConfig& config() const { return config_; }
  const std::string& name() const { return config_.model_name; }
  actor::ModelActor& actor() const { return actor_; }
  const ModelInstruments& instruments() const { return instruments_; }
  DispatchQueue& training_queue() { return training_queue_; }
  DispatchQueue& sampling_queue() { return sampling_queue_; }
  const DispatchQueue& sampling_queue() const { return sampling_queue_; }

  // Returns whether the worker still holds the adapters that were loaded in its `incarnation`.
  bool holds(uint64_t incarnation) const { return actor_.ready() && actor_.incarnation() == incarnation; }

  // The worker ends: nothing starts in this life of it, but what ends a step before `gradients_until`.
  void drain(uint64_t incarnation, Nanos gradients_until) {
    gradients_until_ = gradients_until;
    draining_ = incarnation;
  }
  bool draining() const { return draining_ != 0 && draining_ == actor_.incarnation(); }
  Nanos gradients_until() const { return gradients_until_; }

  // Returns architectures[0] of config.json; empty before the worker is ready for the first time.
  std::string architecture() const {
    MutexLock lock(mutex_);
    return architecture_;
  }
  // Returns when the newest optimizer step ended; 0: there was none.
  Nanos last_step() const { return last_step_.load(std::memory_order_relaxed); }
  void note_step(Nanos now) {
    last_step_.store(now, std::memory_order_relaxed);
    steps_.fetch_add(1, std::memory_order_relaxed);
  }
  void note_pass(int64_t tokens) { tokens_.fetch_add(tokens, std::memory_order_relaxed); }
  TrainedTotals trained() const {
    return {tokens_.load(std::memory_order_relaxed), steps_.load(std::memory_order_relaxed)};
  }
  // Returns true if the worker has this loss; false before it was ready for the first time.
  bool has_loss(const std::string& name) const {
    MutexLock lock(mutex_);
    return losses_.contains(name);
  }
  // The worker has described itself.
  void set_description(const worker::v1::DescribeResponse& description) {
    MutexLock lock(mutex_);
    architecture_ = description.architecture();
    losses_ = {description.losses().begin(), description.losses().end()};
  }

 private:
  const config::ModelConfig config_;
  actor::ModelActor& actor_;
  const ModelInstruments instruments_;
  DispatchQueue training_queue_;
  DispatchQueue sampling_queue_{kSamplingSlots};
  std::atomic<Nanos> last_step_{0};
  std::atomic<int64_t> tokens_{0}, steps_{0};
  std::atomic<uint64_t> draining_{0};  // the life that ends; 0: none
  std::atomic<Nanos> gradients_until_{0};
  mutable Mutex mutex_;
  std::string architecture_ TUFT_GUARDED_BY(mutex_);
  std::unordered_set<std::string> losses_ TUFT_GUARDED_BY(mutex_);
};

// The models of the server. Immutable, so it needs no lock.
class ModelBackends {
 public:
  // `actors` has the order of `models`. Sets the callbacks of the queue gauges.
  ModelBackends(const std::vector<config::ModelConfig>& models, const std::vector<actor::ModelActor*>& actors);
  ~ModelBackends();
  ModelBackends(const ModelBackends&) = delete;
  ModelBackends& operator=(const ModelBackends&) = delete;

  const std::vector<std::shared_ptr<ModelBackend>>& all() const { return backends_; }
  // Returns the model of this name, or kNotFound with a message that lists the models.
  Result<std::shared_ptr<ModelBackend>> find(std::string_view name) const;

 private:
  std::vector<std::shared_ptr<ModelBackend>> backends_;
};

// The errors for a base model whose configuration does not have the capability. Runs and sampling sessions from before
// a restart may belong to such a model, so each use is checked and not only their creation.
inline Error training_disabled(std::string_view base_model) {
  return invalid_argument("base model " + std::string(base_model) + " is configured without the capability training",
                          "training_disabled");
}
inline Error sampling_disabled(std::string_view base_model) {
  return invalid_argument("base model " + std::string(base_model) + " is configured without the capability sampling",
                          "sampling_disabled");
}

inline Error worker_starting(std::string_view base_model) {
  return unavailable("the worker of base model " + std::string(base_model) + " has not become ready within " +
                         std::to_string(kWorkerWait / kSecond) + " s; try again later",
                     "worker_starting");
}

}  // namespace tuft::control
