// A base model and the workers that serve it at the same time, each with its own queues. What is there once for each
// worker is a ModelBackend, what is there once for the base model a Model.
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
#include "control/workers/recent_work.h"

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
// The number of runs that are restored at the worker at once, and if they are of many users. A worker answers some
// thousands of calls at a time and refuses more, those of clients among them.
inline constexpr int64_t kRestoreSlots = 256;
inline constexpr int64_t kRestoresMax = 1024;

// What a base model has trained since the server was started.
struct TrainedTotals {
  int64_t tokens = 0;
  int64_t steps = 0;  // of the optimizer
};

// What is known of a base model whichever worker serves it. Thread-safe.
class ModelFacts {
 public:
  explicit ModelFacts(config::ModelConfig config) : config_(std::move(config)), instruments_(config_.model_name) {}

  const config::ModelConfig& config() const { return config_; }
  const std::string& name() const { return config_.model_name; }
  const ModelInstruments& instruments() const { return instruments_; }

  // Returns architectures[0] of config.json; empty before a worker is ready for the first time.
  std::string architecture() const {
    MutexLock lock(mutex_);
    return architecture_;
  }
  // Returns true if the workers have this loss; false before one was ready for the first time.
  bool has_loss(const std::string& name) const {
    MutexLock lock(mutex_);
    return losses_.contains(name);
  }
  // A worker has described itself.
  void set_description(const worker::v1::DescribeResponse& description) {
    MutexLock lock(mutex_);
    architecture_ = description.architecture();
    losses_ = {description.losses().begin(), description.losses().end()};
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

 private:
  const config::ModelConfig config_;
  const ModelInstruments instruments_;
  std::atomic<Nanos> last_step_{0};
  std::atomic<int64_t> tokens_{0}, steps_{0};
  mutable Mutex mutex_;
  std::string architecture_ TUFT_GUARDED_BY(mutex_);
  std::unordered_set<std::string> losses_ TUFT_GUARDED_BY(mutex_);
};

// One worker of a base model, through its lives. Thread-safe.
class ModelBackend {
 public:
  // `number` counts the workers of the base model from 0.
  ModelBackend(std::shared_ptr<ModelFacts> facts, size_t number, actor::ModelActor& actor)
      : facts_(std::move(facts)), number_(number), actor_(actor), training_queue_(training_slots(config())) {}

  ModelFacts& facts() const { return *facts_; }
  const config::ModelConfig& config() const { return facts_->config(); }
  const std::string& name() const { return facts_->name(); }
  const ModelInstruments& instruments() const { return facts_->instruments(); }
  size_t number() const { return number_; }
  // Names it among all workers of the server: the base model, with the number where there are several.
  std::string label() const { return config().workers == 1 ? name() : name() + "#" + std::to_string(number_ + 1); }

  actor::ModelActor& actor() const { return actor_; }
  DispatchQueue& training_queue() { return training_queue_; }
  DispatchQueue& sampling_queue() { return sampling_queue_; }
  DispatchQueue& restore_queue() { return restore_queue_; }
  const DispatchQueue& training_queue() const { return training_queue_; }
  const DispatchQueue& sampling_queue() const { return sampling_queue_; }
  // The sequences of samples that come into its queue when it has loaded their adapters.
  int64_t unloaded_samples() const { return unloaded_samples_.load(std::memory_order_relaxed); }
  void note_unloaded_samples(int64_t change) { unloaded_samples_.fetch_add(change, std::memory_order_relaxed); }

  // Returns whether a worker that was disconnected may come back with what it held.
  bool may_come_back() const { return config().worker == config::WorkerKind::kJoined; }
  // Returns true once for each life, before it is decided what of all that the worker holds stays there. A later list
  // also names what is just being made there, and does not tell it from what nobody wants.
  bool begin_deciding(uint64_t incarnation) {
    uint64_t known = deciding_;
    while (known < incarnation) {
      if (deciding_.compare_exchange_weak(known, incarnation)) return true;
    }
    return false;
  }
  // What the worker held when its life began is decided (run_resumption.h), so that adapters can be made there.
  void note_cleared(uint64_t incarnation) {
    uint64_t known = cleared_;
    while (known < incarnation && !cleared_.compare_exchange_weak(known, incarnation)) {
    }
  }
  bool is_cleared(uint64_t incarnation) const { return !may_come_back() || cleared_ == incarnation; }
  // Returns whether the worker still holds the adapters that were loaded in its `incarnation`.
  bool holds(uint64_t incarnation) const { return actor_.ready() && actor_.incarnation() == incarnation; }

  // The worker ends: nothing starts in this life of it, but what ends a step before `gradients_until`.
  void drain(uint64_t incarnation, Nanos gradients_until) {
    gradients_until_ = gradients_until;
    draining_ = incarnation;
  }
  bool draining() const { return draining_ != 0 && draining_ == actor_.incarnation(); }
  // Returns whether it ends so soon that what has a gradient is saved without it.
  bool gives_up_gradients(Nanos now) const { return draining() && now >= gradients_until_; }
  // Returns whether new work can go there.
  bool serves() const { return actor_.ready() && !draining(); }

  // What decides where the next run lives: the ranks of the runs that live here, which their memory is proportional to,
  // and the tokens that were trained here lately.
  void add_ranks(int64_t ranks) { ranks_.fetch_add(ranks, std::memory_order_relaxed); }
  int64_t ranks() const { return ranks_.load(std::memory_order_relaxed); }
  RecentWork& recent_work() { return recent_work_; }
  const RecentWork& recent_work() const { return recent_work_; }

 private:
  const std::shared_ptr<ModelFacts> facts_;
  const size_t number_;
  actor::ModelActor& actor_;
  DispatchQueue training_queue_;
  DispatchQueue sampling_queue_{kSamplingSlots};
  DispatchQueue restore_queue_{kRestoreSlots, kRestoresMax};
  std::atomic<int64_t> unloaded_samples_{0};
  std::atomic<uint64_t> draining_{0};  // the life that ends; 0: none
  std::atomic<uint64_t> deciding_{0};  // the newest life of which that is or was being decided; 0: none
  std::atomic<uint64_t> cleared_{0};   // the life of which it is decided; 0: none
  std::atomic<Nanos> gradients_until_{0};
  std::atomic<int64_t> ranks_{0};
  RecentWork recent_work_;
};
using ModelBackendPtr = std::shared_ptr<ModelBackend>;

// A base model with all its workers. Immutable, so it needs no lock.
class Model {
 public:
  // Each worker of the base model has one of `actors`.
  Model(const config::ModelConfig& config, const std::vector<actor::ModelActor*>& actors);

  ModelFacts& facts() const { return *facts_; }
  const config::ModelConfig& config() const { return facts_->config(); }
  const std::string& name() const { return facts_->name(); }
  const std::vector<ModelBackendPtr>& workers() const { return workers_; }

  // Returns true if a worker is up and answers.
  bool ready() const;
  // Returns the state of the worker that can do most, or will soonest.
  actor::WorkerState state() const;
  // Return the sums over the queues of all workers.
  DispatchQueue::Load training_load() const;
  DispatchQueue::Load sampling_load() const;
  // Returns true if new work can go to a worker that is not `one`.
  bool others_serve(const ModelBackend& one) const;
  // Returns the worker for a run that is new, or leaves `left`: of those that serve, the one with the smallest share of
  // the runs and of the recent training; if none serves, of all. Null only if there is none but `left`.
  ModelBackendPtr for_training(Nanos now, const ModelBackend* left = nullptr) const;

 private:
  const std::shared_ptr<ModelFacts> facts_;
  std::vector<ModelBackendPtr> workers_;
};
using ModelPtr = std::shared_ptr<const Model>;

// The models of the server. Immutable, so it needs no lock.
class ModelBackends {
 public:
  // `actors` has the order of `models`, and `workers` actors for each of them.
  ModelBackends(const std::vector<config::ModelConfig>& models, const std::vector<actor::ModelActor*>& actors);
  ModelBackends(const ModelBackends&) = delete;
  ModelBackends& operator=(const ModelBackends&) = delete;

  const std::vector<ModelPtr>& models() const { return models_; }
  // Returns the workers of all models.
  const std::vector<ModelBackendPtr>& all() const { return backends_; }
  // Returns the model of this name, or kNotFound with a message that lists the models.
  Result<ModelPtr> find(std::string_view name) const;

 private:
  std::vector<ModelPtr> models_;
  std::vector<ModelBackendPtr> backends_;
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
