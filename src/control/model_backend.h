// One supported model: its configuration, the actor that runs it, and what the actor said of itself.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "actor/model_actor.h"
#include "base/mutex.h"
#include "config/config.h"
#include "control/dispatch_queue.h"
#include "control/model_instruments.h"

namespace tuft::control {

// Thread-safe. Operations that find no worker wait this long for it, then fail with kUnavailable "worker_starting".
inline constexpr Nanos kWorkerWait = 60 * kSecond;

// What may be at the worker at once. Of training operations, one for each run: so many that requests of 32 tokens fill
// the next four passes. The worker shares passes out by tokens, fairly between users, so that many at once keep nobody
// waiting. Of samples, sequences: as many as its sampler runs at once, and some that step in.
inline int64_t training_slots(const config::ModelConfig& config) {
  return std::max<int64_t>(16, int64_t{4} * config.train_batch_tokens / 32);
}
inline constexpr int64_t kSamplingSlots = 320;

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

  // An adapter that was put into the worker's life `generation` is still there.
  bool holds(uint64_t generation) const { return actor_.ready() && actor_.generation() == generation; }

  // config.json's architectures[0]; empty before the worker was up for the first time.
  std::string architecture() const {
    MutexLock lock(mutex_);
    return architecture_;
  }
  // When the newest optimizer step ended; 0: there was none.
  Nanos last_step() const { return last_step_.load(std::memory_order_relaxed); }
  void note_step(Nanos now) { last_step_.store(now, std::memory_order_relaxed); }
  void set_architecture(std::string architecture) {
    MutexLock lock(mutex_);
    architecture_ = std::move(architecture);
  }

 private:
  const config::ModelConfig config_;
  actor::ModelActor& actor_;
  const ModelInstruments instruments_;
  DispatchQueue training_queue_;
  DispatchQueue sampling_queue_{kSamplingSlots};
  std::atomic<Nanos> last_step_{0};
  mutable Mutex mutex_;
  std::string architecture_ TUFT_GUARDED_BY(mutex_);
};

// The models of the server by name. Built once; then read without a lock.
class ModelBackends {
 public:
  // `actors` in the order of `models`. Observes the queues.
  ModelBackends(const std::vector<config::ModelConfig>& models, const std::vector<actor::ModelActor*>& actors);
  ~ModelBackends();
  ModelBackends(const ModelBackends&) = delete;
  ModelBackends& operator=(const ModelBackends&) = delete;

  const std::vector<std::shared_ptr<ModelBackend>>& all() const { return backends_; }
  // kNotFound, naming what there is.
  Result<std::shared_ptr<ModelBackend>> find(std::string_view name) const;

 private:
  std::vector<std::shared_ptr<ModelBackend>> backends_;
};

inline Error worker_starting(std::string_view base_model) {
  return unavailable("the worker of base model " + std::string(base_model) + " has not become ready within " +
                         std::to_string(kWorkerWait / kSecond) + " s; try again later",
                     "worker_starting");
}

}  // namespace tuft::control
