// tuft_simulated_worker: a tuft-worker whose passes and steps take the time that they took elsewhere. It computes with
// a small base model, and then sleeps until the recorded time of what it did is over. So many workers fit on few cores,
// and what is measured is the server and what it has its workers do. The arguments are those of tuft-worker.
//
// TUFT_SIMULATED_TIMES has the recorded times as JSON, in microseconds:
//   {"train_token": 500, "steps": [[1, 2000], [32, 30000], [64, 52000]]}
// "train_token" is the time of training for each token, of which a third belongs to the forward pass and the rest to
// the backward pass. "steps" are pairs of the tokens that a decode step is fed, ascending, and its time; other numbers
// of tokens take what the straight line through the nearest two says.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "app/tuft_worker/back_end.h"
#include "app/tuft_worker/joined.h"
#include "app/tuft_worker/options.h"
#include "engine/native/native_engine.h"

namespace tuft {
namespace {

using Time = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

struct Times {
  double train_token = 0;
  std::vector<std::pair<double, double>> steps;  // at least two

  double step(double tokens) const {
    const auto above = std::upper_bound(steps.begin() + 1, steps.end() - 1, std::pair(tokens, 0.0));
    const auto [from, from_time] = *(above - 1);
    const auto [to, to_time] = *above;
    return from_time + (to_time - from_time) * (tokens - from) / (to - from);
  }
};

// Lasts from its construction until at least `microseconds` later.
class Lasting {
 public:
  explicit Lasting(double microseconds) : end_(Time::now() + Microseconds(microseconds)) {}
  ~Lasting() { std::this_thread::sleep_until(end_); }
  Lasting(const Lasting&) = delete;
  Lasting& operator=(const Lasting&) = delete;

 private:
  const std::chrono::time_point<Time, Microseconds> end_;
};

class SimulatedTraining final : public engine::TrainingEngine {
 public:
  SimulatedTraining(engine::TrainingEngine& inner, const Times& times) : inner_(inner), times_(times) {}

  Status forward(const engine::Pack& pack, bool keep, std::span<float> logprobs) override {
    tokens_ = static_cast<double>(pack.tokens.size());
    const Lasting lasting(tokens_ * times_.train_token / 3);
    return inner_.forward(pack, keep, logprobs);
  }
  Status backward(std::span<const float> dloss_dlogprobs) override {
    const Lasting lasting(tokens_ * times_.train_token * 2 / 3);
    return inner_.backward(dloss_dlogprobs);
  }
  void drop_pass() override { inner_.drop_pass(); }
  std::vector<Result<engine::OptimReport>> optim_steps(std::span<const engine::AdapterStep> steps) override {
    return inner_.optim_steps(steps);
  }

 private:
  engine::TrainingEngine& inner_;
  const Times& times_;
  double tokens_ = 0;  // of the last forward pass
};

class SimulatedDecoding final : public engine::DecodeEngine {
 public:
  SimulatedDecoding(engine::DecodeEngine& inner, const Times& times) : inner_(inner), times_(times) {}

  Result<engine::SequenceId> open(const std::optional<engine::AdapterId>& adapter, uint64_t scope) override {
    return inner_.open(adapter, scope);
  }
  Result<engine::SequenceId> fork(engine::SequenceId source) override { return inner_.fork(source); }
  void close(engine::SequenceId sequence) override { inner_.close(sequence); }
  int adopt_prefix(engine::SequenceId sequence, std::span<const int32_t> tokens) override {
    return inner_.adopt_prefix(sequence, tokens);
  }
  Status step(std::span<const engine::Feed> feeds, const engine::LogitsSink& sink) override {
    size_t tokens = 0;
    for (const engine::Feed& feed : feeds) tokens += feed.tokens.size();
    const Lasting lasting(times_.step(static_cast<double>(tokens)));
    return inner_.step(feeds, sink);
  }
  engine::KvUsage kv_usage() const override { return inner_.kv_usage(); }

 private:
  engine::DecodeEngine& inner_;
  const Times& times_;
};

class SimulatedEngine final : public engine::Engine {
 public:
  SimulatedEngine(std::unique_ptr<engine::Engine> inner, Times times)
      : inner_(std::move(inner)),
        times_(std::move(times)),
        training_(inner_->training(), times_),
        decoding_(inner_->decoding(), times_) {}

  const engine::ModelSpec& model() const override { return inner_->model(); }
  std::string_view weights_dtype() const override { return inner_->weights_dtype(); }
  engine::AdapterStore& adapters() override { return inner_->adapters(); }
  engine::TrainingEngine& training() override { return training_; }
  engine::DecodeEngine& decoding() override { return decoding_; }

 private:
  const std::unique_ptr<engine::Engine> inner_;
  const Times times_;
  SimulatedTraining training_;
  SimulatedDecoding decoding_;
};

// Throws without the variable, or if its text does not have the form above.
Times recorded_times() {
  const char* const text = std::getenv("TUFT_SIMULATED_TIMES");
  const auto recorded = nlohmann::json::parse(text == nullptr ? "" : text);
  Times times{recorded.at("train_token"), recorded.at("steps")};
  if (times.steps.size() < 2) throw std::invalid_argument("TUFT_SIMULATED_TIMES needs the times of two steps");
  return times;
}

}  // namespace

// These two take the place of those of app/tuft_worker/back_end.cc.
namespace app {

DeviceMemory device_memory(const WorkerFlags&) {
  return {};
}

Result<std::unique_ptr<engine::Engine>> make_engine(const WorkerFlags& flags, const PlanKv&) {
  engine::NativeOptions options;
  options.threads = 1;
  options.kv_bytes_max = flags.kv_cache_bytes;
  TUFT_ASSIGN(std::unique_ptr<engine::Engine> inner, engine::make_native_engine(flags.model_path, options));
  return std::unique_ptr<engine::Engine>(std::make_unique<SimulatedEngine>(std::move(inner), recorded_times()));
}

}  // namespace app
}  // namespace tuft

int main(int argc, char** argv) {
  try {
    const tuft::app::Command command = tuft::app::parse_command(argc, argv);
    if (command.kind == tuft::app::Command::Kind::kExit) return command.exit_code;
    if (command.worker.join.address.empty()) throw std::invalid_argument("it can only join a server: give --join");
    return tuft::app::serve_joined(command.worker, command.arguments);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "tuft_simulated_worker: %s\n", exception.what());
  }
  return 1;
}
