// tuft_placement_bench [WORKERS] [RUNS]: measures what it costs the control plane that a base model has many workers
// and many runs. The workers are fakes that answer at once, so nothing but the control plane works. Prints one line of
// JSON: {"workers": .., "runs": .., "decisions": [..], "places": {..}, "plane": {..}, "sweeps_ms": {..}, "loss": {..},
// "resident_mb": ..}.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <malloc.h>
#include <memory>
#include <numeric>
#include <string>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "control/accounts/usage_ledger.h"
#include "control/checkpoints/checkpoint_store.h"
#include "control/checkpoints/directory_storage.h"
#include "control/futures/future_store.h"
#include "control/queues/disk_worker.h"
#include "control/sampling/sampling_controller.h"
#include "control/sessions/sessions.h"
#include "control/training/training_controller.h"
#include "control/workers/model_backend.h"

namespace tuft::bench {
namespace {

using nlohmann::json;
using Time = std::chrono::steady_clock;

constexpr const char* kModel = "org/model";
constexpr int kRank = 8;
constexpr size_t kUsers = 100;
constexpr int kSweepSamples = 20;
constexpr int kSamples = 5'000;
constexpr Nanos kSweepInterval = 250 * kMillisecond;  // of a server

double seconds_since(Time::time_point begin) {
  return std::chrono::duration<double>(Time::now() - begin).count();
}

template <typename Call>
double milliseconds_of(Call call) {
  const auto begin = Time::now();
  call();
  return seconds_since(begin) * 1e3;
}

// The bytes that are allocated now. Resident memory also counts what was freed and is kept for the next allocation.
double heap_bytes() {
  const auto info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

double resident_bytes() {
  size_t pages = 0;
  size_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
}

// What was allocated since it was made.
class Growth {
 public:
  json megabytes() const {
    return {{"heap_mb", (heap_bytes() - heap_) / 1e6}, {"resident_mb", (resident_bytes() - resident_) / 1e6}};
  }
  double heap_each(size_t count) const { return (heap_bytes() - heap_) / static_cast<double>(count); }

 private:
  const double heap_ = heap_bytes();
  const double resident_ = resident_bytes();
};

// A worker that answers each call at once, with an empty message.
class InstantActor final : public actor::ModelActor {
 public:
  const std::string& base_model() const override { return base_model_; }
  bool ready() const override { return is_up_; }
  bool up() const override { return is_up_; }
  actor::WorkerState state() const override { return is_up_ ? actor::WorkerState::kReady : actor::WorkerState::kDead; }
  uint64_t incarnation() const override { return incarnation_; }
  void on_ready(std::function<void(uint64_t)>) override {}
  void on_draining(std::function<void(uint64_t, Nanos)>) override {}
  void let_go(uint64_t) override {}
  actor::Cancel stream_sample(worker::v1::SampleRequest, const actor::CallOptions&, OnTokens,
                              actor::Callback<worker::v1::SampleResponse> done) override {
    done(worker::v1::SampleResponse());
    return [] {};
  }

  int calls() const { return calls_; }
  void lose() { is_up_ = false; }
  void return_as(uint64_t incarnation) {
    incarnation_ = incarnation;
    is_up_ = true;
  }

 private:
  actor::Cancel send(std::unique_ptr<actor::Call> call, const actor::CallOptions&) override {
    ++calls_;
    call->answer({});
    return [] {};
  }

  const std::string base_model_ = kModel;
  int calls_ = 0;
  bool is_up_ = true;
  uint64_t incarnation_ = 1;
};

class Actors {
 public:
  explicit Actors(size_t count) : actors_(count) {}
  std::vector<actor::ModelActor*> all() {
    std::vector<actor::ModelActor*> found;
    for (InstantActor& actor : actors_) found.push_back(&actor);
    return found;
  }
  InstantActor& first() { return actors_.front(); }
  int calls() const {
    return std::accumulate(actors_.begin(), actors_.end(), 0,
                           [](int sum, const InstantActor& actor) { return sum + actor.calls(); });
  }

 private:
  std::vector<InstantActor> actors_;
};

config::ServerConfig config_of(size_t workers, size_t runs) {
  config::ServerConfig config;
  config.supported_models.emplace_back();
  config.supported_models.back().model_name = kModel;
  config.supported_models.back().max_model_len = 2'048;
  config.supported_models.back().workers = static_cast<int>(workers);
  config.limits.runs_per_user_max = static_cast<int>(runs);
  config.checkpoint_dir = std::filesystem::temp_directory_path() / ("tuft-placement-" + std::to_string(getpid()));
  return config;
}

// ---- decisions, without runs

// Every worker has other ranks and has done other work lately, so that a decision has to look at all of them.
void load(const control::ModelBackends& backends, Nanos now) {
  int64_t number = 0;
  for (const control::ModelBackendPtr& worker : backends.all()) {
    number = (number * 75 + 74) % 65'537;
    worker->add_ranks(kRank * (1 + number % 100));
    worker->recent_work().add(1 + number, now);
  }
}

double decisions_per_second(size_t workers) {
  Actors actors(workers);
  const config::ServerConfig config = config_of(workers, 0);
  const control::ModelBackends backends(config.supported_models, actors.all());
  const control::Model& model = *backends.models().front();
  load(backends, system_clock().monotonic());
  const auto begin = Time::now();
  size_t decisions = 0;
  for (; decisions < 10 || seconds_since(begin) < 0.5; ++decisions) {
    TUFT_CHECK(model.for_training(system_clock().monotonic()) != nullptr, "a worker serves");
  }
  return static_cast<double>(decisions) / seconds_since(begin);
}

// Places runs one after the other, as create_model does, without the runs themselves.
json places_of(size_t workers, size_t runs) {
  Actors actors(workers);
  const config::ServerConfig config = config_of(workers, runs);
  const Growth of_workers;
  const control::ModelBackends backends(config.supported_models, actors.all());
  json out = {{"worker_bytes", of_workers.heap_each(workers)}};
  const control::ModelPtr& model = backends.models().front();
  std::vector<std::unique_ptr<control::RunPlace>> places;
  places.reserve(runs);
  const Growth of_places;
  const auto begin = Time::now();
  for (size_t i = 0; i < runs; ++i) {
    const auto worker = model->for_training(system_clock().monotonic());
    places.push_back(std::make_unique<control::RunPlace>(model, worker, kRank));
  }
  out["per_second"] = static_cast<double>(runs) / seconds_since(begin);
  out["place_bytes"] = of_places.heap_each(runs);
  const auto [least, most] = std::minmax_element(backends.all().begin(), backends.all().end(),
                                                 [](const auto& a, const auto& b) { return a->ranks() < b->ranks(); });
  out["fewest_runs"] = (*least)->ranks() / kRank;
  out["most_runs"] = (*most)->ranks() / kRank;
  return out;
}

// ---- the control plane

// The parts of a control plane that training needs, connected as control_plane.cc does it, so that each part's sweep
// can be called alone.
struct Plane {
  Plane(config::ServerConfig server, const std::vector<actor::ModelActor*>& actors)
      : config(std::move(server)),
        usage(config.limits, clock, persistence),
        backends(config.supported_models, actors),
        sessions(config.limits, clock, persistence, usage),
        budget(config.limits),
        futures(config.limits, clock, persistence, budget),
        checkpoints(control::make_directory_storage(config.checkpoint_dir)),
        sampling(std::make_shared<control::SamplingController>(control::SamplingController::Parts{
            nullptr, config, clock, backends, sessions, budget, futures, checkpoints, persistence, usage})),
        training(control::TrainingController::create(
            {nullptr, config, clock, backends, sessions, futures, checkpoints, disk, persistence, usage, sampling})) {}
  ~Plane() {
    futures.shut_down();
    training->executor().shut_down();
    sampling->shut_down();
    disk.stop();
  }
  Plane(const Plane&) = delete;
  Plane& operator=(const Plane&) = delete;

  control::ModelBackend& worker(size_t number) const { return *backends.all()[number]; }

  const config::ServerConfig config;
  FakeClock clock;
  control::Persistence persistence;
  control::UsageLedger usage;
  const control::ModelBackends backends;
  control::Sessions sessions;
  control::OperationBudget budget;
  control::FutureStore futures;
  control::CheckpointStore checkpoints;
  control::DiskWorker disk;
  const std::shared_ptr<control::SamplingController> sampling;
  const std::shared_ptr<control::TrainingController> training;
};

void create_runs(Plane& plane, size_t runs) {
  for (size_t user_number = 0; user_number < kUsers; ++user_number) {
    const control::UserId user("user-" + std::to_string(user_number));
    const auto session = plane.sessions.create(user, {});
    TUFT_CHECK(session.ok(), "a session can be created");
    for (size_t i = 0; i < runs / kUsers; ++i) {
      control::CreateModel request;
      request.session = *session;
      request.model_seq_id = static_cast<int64_t>(i);
      request.base_model = kModel;
      request.lora.rank = kRank;
      TUFT_CHECK(plane.training->submissions().create_model(user, request, {}).ok(), "a run can be created");
    }
  }
}

// Returns the samples that are submitted, sent to a worker and answered in a second: each is a decision, too.
double samples_per_second(size_t workers) {
  Actors actors(workers);
  Plane plane(config_of(workers, 0), actors.all());
  const control::UserId user("user");
  const auto session = plane.sessions.create(user, {});
  TUFT_CHECK(session.ok(), "a session can be created");
  const auto sampler = plane.sampling->create_session(user, {*session, 0, kModel, ""}, {});
  TUFT_CHECK(sampler.ok(), "a sampling session can be created");
  control::Sample request;
  request.sampler = *sampler;
  request.prompt_tokens = {1, 2, 3};
  request.params.set_max_tokens(1);
  const auto begin = Time::now();
  for (int i = 0; i < kSamples; ++i) {
    TUFT_CHECK(plane.sampling->sample(user, request, {}).ok(), "a sample can be submitted");
  }
  const double seconds = seconds_since(begin);
  TUFT_CHECK(actors.calls() == kSamples, "each sample went to a worker");
  return kSamples / seconds;
}

// Clients have fetched the answers of create_model long ago.
void forget_futures(Plane& plane) {
  plane.clock.advance(25 * 3600 * kSecond);
  plane.futures.sweep();
}

json fill(Plane& plane, size_t runs) {
  const Growth growth;
  const auto begin = Time::now();
  create_runs(plane, runs);
  const double seconds = seconds_since(begin);
  json out = {{"created_per_second", static_cast<double>(runs) / seconds}, {"with_futures", growth.megabytes()}};
  forget_futures(plane);
  out["without_futures"] = growth.megabytes();
  out["run_bytes"] = growth.heap_each(runs);
  return out;
}

template <typename Sweep>
json sampled(Plane& plane, Sweep sweep) {
  std::vector<double> samples;
  for (int i = 0; i < kSweepSamples; ++i) {
    plane.clock.advance(kSweepInterval);
    samples.push_back(milliseconds_of(sweep));
  }
  std::sort(samples.begin(), samples.end());
  return {{"median", samples[samples.size() / 2]}, {"longest", samples.back()}};
}

json sweeps_of(Plane& plane) {
  control::TrainingController& training = *plane.training;
  return {{"placement", sampled(plane, [&] { training.placement().sweep(); })},
          {"executor", sampled(plane, [&] { training.executor().sweep(); })},
          {"activity", sampled(plane, [&] { training.activity().sweep(); })}};
}

// A worker is gone, its runs go to the others, and it comes back and gets its part again.
json lose_one(Plane& plane, InstantActor& actor) {
  control::RunPlacement& placement = plane.training->placement();
  const control::ModelBackend& worker = plane.worker(0);
  const int64_t before = worker.ranks() / kRank;
  actor.lose();
  placement.sweep();  // notes since when it is gone
  plane.clock.advance(control::RunPlacement::kAway);
  const double moving_ms = milliseconds_of([&] { placement.sweep(); });
  const int64_t moved = before - worker.ranks() / kRank;
  actor.return_as(2);
  json out = {{"moved", moved}, {"moving_sweep_ms", moving_ms}};
  placement.sweep();  // notes since when there is a difference
  plane.clock.advance(control::RunPlacement::kSteady);
  const auto begin = Time::now();
  int sweeps = 0;
  for (int64_t held = -1; held != worker.ranks(); ++sweeps) {
    held = worker.ranks();
    placement.sweep();
  }
  out["balancing_sweeps"] = sweeps;
  out["balancing_sweep_ms"] = seconds_since(begin) / sweeps * 1e3;
  out["returned"] = worker.ranks() / kRank;
  return out;
}

json decisions_of(size_t workers) {
  const double per_second = decisions_per_second(workers);
  return {{"workers", workers},
          {"per_second", per_second},
          {"us", 1e6 / per_second},
          {"samples_per_second", samples_per_second(workers)}};
}

json measure(size_t workers, size_t runs) {
  json out = {{"workers", workers}, {"runs", runs}, {"decisions", json::array()}};
  for (size_t count = 1; count <= workers; count *= 10) out["decisions"].push_back(decisions_of(count));
  out["places"] = places_of(workers, runs);
  Actors actors(workers);
  Plane plane(config_of(workers, runs), actors.all());
  out["plane"] = fill(plane, runs);
  out["sweeps_ms"] = sweeps_of(plane);
  out["loss"] = lose_one(plane, actors.first());
  out["resident_mb"] = resident_bytes() / 1e6;
  return out;
}

}  // namespace
}  // namespace tuft::bench

int main(int argc, char** argv) {
  const size_t workers = argc > 1 ? std::stoul(argv[1]) : 1'000;
  const size_t runs = argc > 2 ? std::stoul(argv[2]) : 100'000;
  if (workers == 0 || runs < tuft::bench::kUsers) {
    std::cerr << "usage: tuft_placement_bench [WORKERS] [RUNS], at least " << tuft::bench::kUsers << " runs\n";
    return 2;
  }
  std::cout << tuft::bench::measure(workers, runs).dump() << '\n';
  return 0;
}
