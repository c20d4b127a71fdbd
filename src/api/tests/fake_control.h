// A control plane with two users and with futures that tests finish. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/tests/fake_catalog.h"
#include "api/tests/fake_checkpoint_actions.h"
#include "api/tests/fake_observer.h"
#include "base/mutex.h"
#include "control/accounts/usage_ledger.h"
#include "control/control_plane.h"
#include "control/tests/recording_store.h"
#include "control/views/trace_exports.h"
#include "openai/tests/fake_generation.h"

namespace tuft::api {

class FakeControl final : public control::ControlPlane {
 public:
  using Snapshot = control::FutureSnapshot;
  using Trace = telemetry::SpanContext;

  // ---- for tests

  void finish(const std::string& id, Snapshot snapshot) TUFT_EXCLUDES(mutex_) {
    std::vector<std::function<void(Result<Snapshot>)>> ready;
    {
      MutexLock lock(mutex_);
      Future& future = futures_[id];
      snapshot.request = control::RequestId(id);
      future.snapshot = snapshot;
      for (auto it = waits_.begin(); it != waits_.end();) {
        if (it->second.id == id) {
          ready.push_back(std::move(it->second.done));
          it = waits_.erase(it);
        } else {
          ++it;
        }
      }
    }
    for (auto& done : ready) done(snapshot);
  }
  void finish_with(const std::string& id, control::OperationType operation, control::FutureValue value) {
    Snapshot snapshot;
    snapshot.state = Snapshot::State::kReady;
    snapshot.operation = operation;
    snapshot.value = std::make_shared<const control::FutureValue>(std::move(value));
    finish(id, std::move(snapshot));
  }
  void fail_with(const std::string& id, Error error) {
    Snapshot snapshot;
    snapshot.state = Snapshot::State::kFailed;
    snapshot.error = std::move(error);
    finish(id, std::move(snapshot));
  }
  // Blocks until `count` polls wait.
  void await_waits(size_t count) TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (waits_.size() != count) changed_.wait(mutex_);
  }
  size_t waits() TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return waits_.size();
  }
  // Removes and returns the callback of a parked poll, so that a test can call it late.
  std::function<void(Result<Snapshot>)> steal_wait() TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    std::function<void(Result<Snapshot>)> done = std::move(waits_.begin()->second.done);
    waits_.clear();
    return done;
  }
  // Orders a test's reads of the fields below after the server's writes, in a way that ThreadSanitizer sees.
  void synchronize() TUFT_EXCLUDES(mutex_) { MutexLock lock(mutex_); }

  std::vector<std::string> calls;  // "<user> <call>"
  control::CreateSession last_session;
  control::CreateModel last_model;
  control::CreateCustomLoss last_custom_loss;
  control::OptimStep last_optim;
  control::SaveWeights last_save;
  control::SaveWeightsForSampler last_sampler_save;
  control::RefusedOperation last_refused;
  control::SaveWeightsExternal last_external_save;
  control::SessionFinish last_finish;
  control::Sample last_sample;
  tinker_public::ForwardBackwardRequest last_pass;
  Trace last_trace;
  std::vector<telemetry::WorkerMetrics> worker_metrics;
  FakeCatalog fake_catalog;
  FakeObserver fake_observer;
  FakeCheckpointActions fake_checkpoint_actions;
  std::function<void()> on_pass = [] {};  // called by forward_backward, without a lock
  std::function<void()> on_end = [] {};   // called by end_session, without a lock
  Status next_failure;                    // returned by the next call (except authenticate)
  openai::FakeGeneration fake_generation;
  control::RecordingStore store;
  control::Intake fake_intake{&store, int64_t{1} << 30, 24 * 3600 * kSecond, system_clock()};
  control::Persistence keeps_nothing;
  control::UsageLedger usage_ledger{config::Limits(), system_clock(), keeps_nothing};

  // ---- ControlPlane

  Result<control::UserId> authenticate(std::string_view key) const override {
    if (key.empty()) return Error{ErrorCode::kUnauthenticated, "the X-API-Key header is missing", ""};
    if (key == "tml-alice" || key == "tml-alice-2") return control::UserId("alice");
    if (key == "tml-bob") return control::UserId("bob");
    if (key == "tml-carol") return control::UserId("carol");  // an operator
    return Error{ErrorCode::kPermissionDenied, "this API key is not known", ""};
  }
  void replace_api_keys(const std::map<std::string, std::string>&) override {}
  std::vector<control::SupportedModel> supported_models() const override { return {{"base/model", 2048, true, true}}; }
  bool ready() const override { return true; }

  Result<control::SessionId> create_session(const control::UserId& user, const control::CreateSession& r) override {
    TUFT_TRY(note(user, "create_session", [&] { last_session = r; }));
    return control::SessionId("s-" + user.str());
  }
  Status heartbeat(const control::UserId& user, const control::SessionId& id) override {
    TUFT_TRY(note(user, "heartbeat", [] {}));
    if (id.str() != "s-" + user.str()) return not_found("there is no such session");
    return {};
  }
  Status end_session(const control::UserId& user, const control::SessionId& id,
                     const control::SessionFinish& finish) override {
    on_end();
    TUFT_TRY(note(user, "end_session " + id.str(), [&] { last_finish = finish; }));
    if (id.str() != "s-" + user.str()) return not_found("there is no such session");
    return {};
  }
  Status cancel_future(const control::UserId& user, const control::RequestId& id) override {
    return note(user, "cancel_future " + id.str(), [] {});
  }
  Result<control::Submitted> create_model(const control::UserId& user, const control::CreateModel& r,
                                          const Trace& trace) override {
    TUFT_TRY(note(user, "create_model", [&] { last_model = r, last_trace = trace; }));
    return submit(user, control::RunId(r.session.str() + ":train:0"));
  }
  Result<control::Submitted> unload_model(const control::UserId& user, const control::RunId& run,
                                          const Trace&) override {
    TUFT_TRY(note(user, "unload_model", [] {}));
    return submit(user, run);
  }
  Result<control::Submitted> forward_backward(const control::UserId& user, tinker_public::ForwardBackwardRequest r,
                                              const Trace& trace) override {
    const control::RunId run(r.model_id());
    on_pass();
    TUFT_TRY(note(user, "forward_backward", [&] { last_pass = std::move(r), last_trace = trace; }));
    return submit(user, run);
  }
  Result<control::Submitted> optim_step(const control::UserId& user, const control::OptimStep& r,
                                        const Trace&) override {
    TUFT_TRY(note(user, "optim_step", [&] { last_optim = r; }));
    return submit(user, r.run);
  }
  Error refuse(const control::UserId&, const control::RefusedOperation& refused, const Trace&) override {
    last_refused = refused;
    return refused.why;
  }
  Result<control::Submitted> save_weights(const control::UserId& user, const control::SaveWeights& r,
                                          const Trace&) override {
    TUFT_TRY(note(user, "save_weights", [&] { last_save = r; }));
    return submit(user, r.run);
  }
  Result<control::Submitted> save_weights_for_sampler(const control::UserId& user,
                                                      const control::SaveWeightsForSampler& r, const Trace&) override {
    TUFT_TRY(note(user, "save_weights_for_sampler", [&] { last_sampler_save = r; }));
    return submit(user, r.run);
  }
  Result<control::Submitted> save_weights_external(const control::UserId& user, const control::SaveWeightsExternal& r,
                                                   const Trace&) override {
    TUFT_TRY(note(user, "save_weights_external", [&] { last_external_save = r; }));
    return submit(user, r.run);
  }
  Result<control::Submitted> create_custom_loss(const control::UserId& user, const control::CreateCustomLoss& r,
                                                const Trace&) override {
    TUFT_TRY(note(user, "create_custom_loss", [&] { last_custom_loss = r; }));
    return submit(user, std::nullopt);
  }
  Result<control::Submitted> load_weights(const control::UserId& user, const control::LoadWeights& r,
                                          const Trace&) override {
    TUFT_TRY(note(user, "load_weights", [] {}));
    return submit(user, r.run);
  }
  Result<control::Submitted> sample(const control::UserId& user, control::Sample r, const Trace&) override {
    TUFT_TRY(note(user, "sample", [&] { last_sample = std::move(r); }));
    return submit(user, std::nullopt);
  }
  Result<control::SamplerId> create_sampling_session(const control::UserId& user,
                                                     const control::CreateSamplingSession& r, const Trace&) override {
    TUFT_TRY(note(user, "create_sampling_session", [] {}));
    return control::SamplerId(r.session.str() + ":sample:" + std::to_string(r.seq_id));
  }
  Result<control::ModelInfo> get_info(const control::UserId&, const control::RunId& run) const override {
    return control::ModelInfo{run, "base/model", "llama", "base/model", 8};
  }
  Result<control::SamplerInfo> get_sampler(const control::UserId&, const control::SamplerId& id) const override {
    if (id.str() != "s:sample:0") return not_found("there is no such sampler");
    return control::SamplerInfo{id, "base/model", std::nullopt, 0};
  }
  Result<control::WeightsInfo> weights_info(const control::UserId&, std::string_view path) const override {
    if (path != "tinker://r/weights/a") return not_found("there is no such checkpoint");
    return control::WeightsInfo{"base/model", 8, true, false, true};
  }

  WaitId wait_future(const control::UserId& user, const control::RequestId& id,
                     std::function<void(Result<Snapshot>)> done) override TUFT_EXCLUDES(mutex_) {
    Result<Snapshot> answer = not_found("there is no such future");
    {
      MutexLock lock(mutex_);
      const auto found = futures_.find(id.str());
      if (id.str() == "evicted") answer = Error{ErrorCode::kGone, "this future was dropped", ""};
      if (found != futures_.end() && found->second.owner == user.str()) {
        if (found->second.snapshot.state == Snapshot::State::kPending) {
          waits_[++last_wait_] = {id.str(), std::move(done)};
          changed_.notify_all();
          return last_wait_;
        }
        answer = found->second.snapshot;
      }
    }
    done(std::move(answer));
    return 0;
  }
  void end_wait(WaitId wait) override TUFT_EXCLUDES(mutex_) {
    Wait ended;
    {
      MutexLock lock(mutex_);
      const auto found = waits_.find(wait);
      if (found == waits_.end()) return;
      ended = std::move(found->second);
      waits_.erase(found);
      changed_.notify_all();
    }
    Snapshot pending;
    pending.request = control::RequestId(ended.id);
    ended.done(pending);
  }
  Result<WaitId> watch_samples(const control::UserId& user, const control::SampleFeed& feed, int64_t after, bool waits,
                               std::function<void(control::SampleNews)> done) override TUFT_EXCLUDES(mutex_) {
    if (feed.sampler.str() != "s:sample:0") return not_found("there is no such sampler");
    TUFT_TRY(note(user, "watch_samples " + std::to_string(feed.client) + " after " + std::to_string(after), [] {}));
    control::SampleNews news{{}, after};
    if (after == 0) news = {{{control::RequestId("r1"), false, 124}, {control::RequestId("r2"), true, 0}}, 7};
    if (!news.completions.empty() || !waits) {
      done(std::move(news));
      return WaitId{0};
    }
    MutexLock lock(mutex_);
    watches_[++last_wait_] = {after, std::move(done)};
    changed_.notify_all();
    return last_wait_;
  }
  void end_watch(const control::SampleFeed&, WaitId watch) override TUFT_EXCLUDES(mutex_) {
    std::pair<int64_t, std::function<void(control::SampleNews)>> ended;
    {
      MutexLock lock(mutex_);
      const auto found = watches_.find(watch);
      if (found == watches_.end()) return;
      ended = std::move(found->second);
      watches_.erase(found);
      changed_.notify_all();
    }
    ended.second({{}, ended.first});
  }
  size_t watches() TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return watches_.size();
  }
  void collect_worker_metrics(std::function<void(std::vector<telemetry::WorkerMetrics>)> done) override {
    done(worker_metrics);
  }
  control::Catalog& catalog() override { return fake_catalog; }
  control::CheckpointActions& checkpoint_actions() override { return fake_checkpoint_actions; }
  control::Usage& usage() override { return usage_ledger; }
  control::TraceExports& trace_exports() override { return *trace_exports_; }
  control::Generation& generation() override { return fake_generation; }
  control::Intake& intake() override { return fake_intake; }
  control::Observer& observer() override { return fake_observer; }
  std::string owner_of(std::string_view) const override { return {}; }
  void sweep() override {}
  void shut_down() override {}

 private:
  struct Future {
    std::string owner;
    Snapshot snapshot;
  };
  struct Wait {
    std::string id;
    std::function<void(Result<Snapshot>)> done;
  };

  template <typename Keep>
  Status note(const control::UserId& user, const std::string& call, Keep keep) TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!next_failure.ok()) return std::exchange(next_failure, Status());
    calls.push_back(user.str() + " " + call);
    keep();
    return {};
  }
  Result<control::Submitted> submit(const control::UserId& user, std::optional<control::RunId> run)
      TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const std::string id = "r" + std::to_string(++last_request_);
    futures_[id].owner = user.str();
    return control::Submitted{control::RequestId(id), std::move(run)};
  }

  const control::ModelBackends no_backends_{{}, {}};
  const std::shared_ptr<control::TraceExports> trace_exports_ =
      std::make_shared<control::TraceExports>(control::TraceExports::Parts{
          system_clock(), no_backends_,
          [](const control::UserId& user, const control::SessionId& id) { return id.str() == "s-" + user.str(); }});
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Future> futures_ TUFT_GUARDED_BY(mutex_);
  std::map<WaitId, Wait> waits_ TUFT_GUARDED_BY(mutex_);
  std::map<WaitId, std::pair<int64_t, std::function<void(control::SampleNews)>>> watches_ TUFT_GUARDED_BY(mutex_);
  WaitId last_wait_ TUFT_GUARDED_BY(mutex_) = 0;
  int last_request_ TUFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace tuft::api
