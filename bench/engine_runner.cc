// tuft_engine_runner --model DIRECTORY [--threads N] [--dtype f32|bf16]
//                    [--device cpu|cuda:N [--kv-bytes N] [--cuda-graphs yes]]
//
// With --device the engine is the torch back end, if this build has it, else the native one.
//
// Measures the engine for bench/run.py: reads one JSON request per line on stdin, answers one per line on stdout. So
// the script can alternate between this program and others (bench/peers) with the same protocol. Requests:
//   {"op":"train","lengths":[128,...],"rank":16,"batch_tokens":512,"steps":1}      forward_backward + optim_step
//   {"op":"train_tenants","tenants":[[32],[64,16]],"rank":16,"batch_tokens":512,"steps":1,"together":true,"half":false}
//                                 one forward_backward and one optim_step per tenant; together false: one tenant
//                                 after the other; half: the first half of every datum has no weight, like a prompt
//   {"op":"fairness","light":15,"length":32,"heavy_tokens":8192,"rounds":8,...}    short requests during a long one
//   {"op":"decode","batch":8,"prompt":8,"new_tokens":64,"rank":16,"adapters":1}    rank 0: the base model
//   {"op":"sample","batch":8,"prompt":64,"new_tokens":64,"rank":16,"adapters":4,"batch_tokens":256}
//                                 like a server: from the arrival of all requests to their last token
//   {"op":"device_seconds"}       the work of the device so far, by kind
//   {"op":"publish","rank":16,"length":64,"prompt":64,"batch_tokens":512}
//                                 from optim_step to the first token sampled with the new weights
// peak_bytes in some answers is the peak memory of the process during the request.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "engine/native/native_engine.h"
#ifdef TUFT_TORCH
#include "engine/torch/torch_engine.h"
#endif
#include "engine/sample/sampler.h"
#include "engine/train/scheduler.h"
#include "machine_peaks.h"

namespace tuft::bench {
namespace {

using nlohmann::json;

template <typename T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}

void check(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.error().message);
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Returns the peak since forget_peak(); Linux only, 0 elsewhere.
int64_t peak_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

void forget_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

class Stopwatch {
 public:
  double seconds() const {
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin_;
    return wall.count();
  }
  json stop() const {
    return {{"seconds", seconds()}, {"cpu_seconds", cpu_seconds() - cpu_}, {"peak_bytes", peak_bytes()}};
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double cpu_ = cpu_seconds();
};

// The same token stream as in bench/peers.
class Tokens {
 public:
  explicit Tokens(int vocab) : vocab_(static_cast<uint64_t>(vocab)) {}
  int32_t next() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<int32_t>((state_ >> 33) % vocab_);
  }
  std::vector<int32_t> take(size_t count) {
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) token = next();
    return tokens;
  }

 private:
  uint64_t vocab_;
  uint64_t state_ = 1;
};

const engine::AdapterId& bench_adapter() {
  static const engine::AdapterId adapter("bench");
  return adapter;
}

void fresh_adapter(engine::Engine& engine, int rank, const engine::AdapterId& adapter = bench_adapter()) {
  if (engine.adapters().contains(adapter)) check(engine.adapters().remove(adapter));
  engine::LoraSpec spec;
  spec.rank = rank;
  spec.alpha = 2.0F * static_cast<float>(rank);
  check(engine.adapters().create(adapter, engine::make_adapter(engine.model(), spec)));
}

engine::TrainRequest train_request(int vocab, const std::vector<size_t>& lengths, bool half = false) {
  Tokens stream(vocab);
  engine::TrainRequest request;
  request.adapter = bench_adapter();
  request.loss_fn = "cross_entropy";
  for (const size_t length : lengths) {
    const std::vector<int32_t> tokens = stream.take(length + 1);
    engine::Datum& datum = request.data.emplace_back();
    datum.tokens.assign(tokens.begin(), tokens.end() - 1);
    const std::vector<int64_t> shape = {static_cast<int64_t>(length)};
    datum.loss_inputs["target_tokens"] = {shape, std::vector<int64_t>(tokens.begin() + 1, tokens.end())};
    std::vector<float> weights(length, 1.0F);
    if (half) std::fill_n(weights.begin(), length / 2, 0.0F);
    datum.loss_inputs["weights"] = {shape, std::move(weights)};
  }
  return request;
}

// "loss" is that of the first step; it shows whether two programs compute the same.
json train(engine::Engine& engine, const json& asked) {
  forget_peak();
  fresh_adapter(engine, asked.at("rank").get<int>());
  const auto request = train_request(engine.model().vocab_size, asked.at("lengths").get<std::vector<size_t>>());
  engine::TrainerOptions options;
  options.batch_tokens = asked.at("batch_tokens").get<int>();
  options.tokens_max = engine.model().max_position;
  std::optional<double> first_loss;
  int64_t tokens = 0;
  const Stopwatch watch;
  for (int step = 0; step < asked.at("steps").get<int>(); ++step) {
    const engine::TrainOutput output = value_or_throw(engine::train_alone(engine, request, options));
    value_or_throw(engine.training().optim_step(bench_adapter(), {}));
    if (!first_loss) first_loss = output.metrics.at("loss:sum");
    tokens += output.tokens;
  }
  json answer = watch.stop();
  answer["tokens"] = tokens;
  answer["loss"] = *first_loss;
  return answer;
}

// Creates adapters "tenant 0", "tenant 1", ..; the destructor removes them.
class Tenants {
 public:
  Tenants(engine::Engine& engine, int count, int rank) : engine_(engine) {
    for (int i = 0; i < count; ++i) fresh_adapter(engine, rank, ids_.emplace_back("tenant " + std::to_string(i)));
  }
  ~Tenants() {
    for (const engine::AdapterId& id : ids_) check(engine_.adapters().remove(id));
  }
  const std::vector<engine::AdapterId>& ids() const { return ids_; }
  void optim_step(bool together) {
    std::vector<engine::AdapterStep> steps;
    for (const engine::AdapterId& id : ids_) steps.push_back({id, {}});
    if (!together) {
      for (const engine::AdapterStep& step : steps)
        value_or_throw(engine_.training().optim_step(step.adapter, std::get<engine::AdamParams>(step.params)));
      return;
    }
    for (auto& report : engine_.training().optim_steps(steps)) value_or_throw(std::move(report));
  }

 private:
  engine::Engine& engine_;
  std::vector<engine::AdapterId> ids_;
};

engine::TrainRequest request_of(const engine::AdapterId& adapter, int vocab, const std::vector<size_t>& lengths,
                                bool half = false) {
  engine::TrainRequest request = train_request(vocab, lengths, half);
  request.adapter = adapter;
  return request;
}

// Trains many runs. "loss" is the sum of all in the first step.
json train_tenants(engine::Engine& engine, const json& asked) {
  forget_peak();
  const auto lengths = asked.at("tenants").get<std::vector<std::vector<size_t>>>();
  Tenants tenants(engine, static_cast<int>(lengths.size()), asked.at("rank").get<int>());
  const engine::TrainerOptions options{asked.at("batch_tokens").get<int>(), engine.model().max_position};
  const auto scheduler = engine::make_train_scheduler(engine.model(), engine.adapters(), engine.training(), options);
  const bool together = asked.at("together").get<bool>();
  const bool half = asked.value("half", false);
  double loss = 0;
  int64_t tokens = 0;
  const auto run_step = [&] {
    loss = 0;
    for (size_t tenant = 0; tenant < lengths.size(); ++tenant) {
      auto request = request_of(tenants.ids()[tenant], engine.model().vocab_size, lengths[tenant], half);
      value_or_throw(scheduler->submit(std::move(request), [&](Result<engine::TrainOutput> result) {
        const engine::TrainOutput output = value_or_throw(std::move(result));
        loss += output.metrics.at("loss:sum");
        tokens += output.tokens;
      }));
      while (!together && !scheduler->idle()) scheduler->step();
    }
    while (!scheduler->idle()) scheduler->step();
    tenants.optim_step(together);
  };
  // The first step is not measured, because it allocates gradients and moments, 12 bytes per parameter.
  run_step();
  const double first_loss = loss;
  tokens = 0;
  const Stopwatch watch;
  for (int step = 0; step < asked.at("steps").get<int>(); ++step) run_step();
  json answer = watch.stop();
  answer["tokens"] = tokens;
  answer["loss"] = first_loss;
  return answer;
}

// Measures the latency of short requests, in milliseconds and in passes, while another tenant has a long one. Each
// light tenant has one request at a time. heavy_tokens 0: no long request.
json fairness(engine::Engine& engine, const json& asked) {
  const int light = asked.at("light").get<int>();
  const auto length = asked.at("length").get<size_t>();
  const auto heavy_datums = asked.at("heavy_tokens").get<size_t>() / 128;
  const int vocab = engine.model().vocab_size;
  const Tenants tenants(engine, light + 1, asked.at("rank").get<int>());
  const engine::TrainerOptions options{asked.at("batch_tokens").get<int>(), engine.model().max_position};
  const auto scheduler = engine::make_train_scheduler(engine.model(), engine.adapters(), engine.training(), options);
  bool heavy_done = heavy_datums == 0;
  if (!heavy_done) {
    const std::vector<size_t> lengths(heavy_datums, 128);
    value_or_throw(scheduler->submit(request_of(tenants.ids()[light], vocab, lengths, true),
                                     [&](const Result<engine::TrainOutput>&) { heavy_done = true; }));
  }
  std::vector<double> milliseconds;
  std::vector<int> passes;
  int pass = 0;
  int left = light * asked.at("rounds").get<int>();
  // A tenant sends its next request when the previous one is answered.
  std::function<void(int)> send = [&](int tenant) {
    if (left-- <= 0) return;
    value_or_throw(scheduler->submit(request_of(tenants.ids()[tenant], vocab, {length}, true),
                                     [&, tenant, watch = Stopwatch(), before = pass](const auto& result) {
                                       check(result.ok() ? Status() : Status(result.error()));
                                       milliseconds.push_back(1e3 * watch.seconds());
                                       passes.push_back(pass - before);
                                       send(tenant);
                                     }));
  };
  for (int tenant = 0; tenant < light; ++tenant) send(tenant);
  const Stopwatch watch;
  const size_t expected = static_cast<size_t>(light) * asked.at("rounds").get<size_t>();
  while (milliseconds.size() < expected) {
    ++pass;
    scheduler->step();
  }
  json answer = watch.stop();
  answer["heavy_still_runs"] = !heavy_done;
  answer["milliseconds"] = milliseconds;
  answer["passes"] = passes;
  return answer;
}

engine::SampleRequest sample_request(const std::optional<engine::AdapterId>& adapter, std::vector<int32_t> prompt,
                                     int new_tokens) {
  engine::SampleRequest request;
  request.adapter = adapter;
  request.prompt = std::move(prompt);
  request.params.temperature = 0.0F;
  request.params.max_tokens = new_tokens;
  return request;
}

// All prompts fit into one step. The steps after it are timed.
json decode(engine::Engine& engine, const json& asked) {
  const int batch = asked.at("batch").get<int>();
  const int prompt = asked.at("prompt").get<int>();
  const int rank = asked.at("rank").get<int>();
  engine::SamplerOptions options;
  options.batch_tokens = std::max(256, batch * prompt);
  options.tokens_max = engine.model().max_position;
  forget_peak();
  const Tenants tenants(engine, rank > 0 ? asked.value("adapters", 1) : 0, rank);
  const auto& adapters = tenants.ids();
  Tokens stream(engine.model().vocab_size);
  const auto sampler =
      engine::make_sampler(engine.model(), engine.adapters(), engine.decoding(), options, {}, system_clock());
  int64_t tokens = 0;
  for (int i = 0; i < batch; ++i) {
    std::optional<engine::AdapterId> adapter;
    if (!adapters.empty()) adapter = adapters[static_cast<size_t>(i) % adapters.size()];
    auto request = sample_request(adapter, stream.take(static_cast<size_t>(prompt)), asked.at("new_tokens").get<int>());
    value_or_throw(sampler->submit(std::move(request), [&tokens](Result<engine::SampleResult> result) {
      tokens += static_cast<int64_t>(value_or_throw(std::move(result)).sequences.at(0).tokens.size()) - 1;
    }));
  }
  sampler->step();
  const Stopwatch watch;
  while (!sampler->idle()) sampler->step();
  json answer = watch.stop();
  answer["tokens"] = tokens;
  return answer;
}

// "first_tokens" shows whether two programs compute the same.
json sample(engine::Engine& engine, const json& asked) {
  forget_peak();
  const auto batch = asked.at("batch").get<size_t>();
  const int new_tokens = asked.at("new_tokens").get<int>();
  const Tenants tenants(engine, asked.at("adapters").get<int>(), asked.at("rank").get<int>());
  engine::SamplerOptions options;
  options.batch_tokens = asked.at("batch_tokens").get<int>();
  options.tokens_max = engine.model().max_position;
  const auto sampler =
      engine::make_sampler(engine.model(), engine.adapters(), engine.decoding(), options, {}, system_clock());
  Tokens stream(engine.model().vocab_size);
  std::vector<std::vector<double>> moments(batch);  // times of each sequence's tokens, in milliseconds
  std::vector<int32_t> first_tokens(batch);
  int cached = 0;
  const Stopwatch watch;
  for (size_t i = 0; i < batch; ++i) {
    std::optional<engine::AdapterId> adapter;
    if (!tenants.ids().empty()) adapter = tenants.ids()[i % tenants.ids().size()];
    auto request = sample_request(adapter, stream.take(asked.at("prompt").get<size_t>()), new_tokens);
    request.on_tokens = [&moments, &watch, i](int, const auto& tokens, const auto&, const auto&) {
      moments[i].insert(moments[i].end(), tokens.size(), 1e3 * watch.seconds());
    };
    value_or_throw(sampler->submit(std::move(request), [&, i](Result<engine::SampleResult> result) {
      const engine::SampleResult output = value_or_throw(std::move(result));
      first_tokens[i] = output.sequences.at(0).tokens.at(0);
      cached += output.cached_tokens;
    }));
  }
  while (!sampler->idle()) sampler->step();
  json answer = watch.stop();
  for (const std::vector<double>& of : moments) {
    answer["ttft_ms"].push_back(of.at(0));
    for (size_t i = 1; i < of.size(); ++i) answer["itl_ms"].push_back(of[i] - of[i - 1]);
  }
  answer["tokens"] = static_cast<int64_t>(batch) * new_tokens;
  answer["cached_tokens"] = cached;
  answer["first_tokens"] = first_tokens;
  return answer;
}

json publish(engine::Engine& engine, const json& asked) {
  forget_peak();
  const Tenants tenants(engine, 1, asked.at("rank").get<int>());
  const engine::AdapterId& trained = tenants.ids().front();
  const engine::TrainerOptions training{asked.at("batch_tokens").get<int>(), engine.model().max_position};
  const int vocab = engine.model().vocab_size;
  const auto forward_backward = [&] {
    auto request = request_of(trained, vocab, {asked.at("length").get<size_t>()}, true);
    value_or_throw(engine::train_alone(engine, std::move(request), training));
  };
  forward_backward();
  value_or_throw(engine.training().optim_step(trained, {}));  // the first step allocates the moments
  forward_backward();
  engine::SamplerOptions options;
  options.tokens_max = engine.model().max_position;
  const auto sampler =
      engine::make_sampler(engine.model(), engine.adapters(), engine.decoding(), options, {}, system_clock());
  auto request =
      sample_request(engine::AdapterId("published"), Tokens(vocab).take(asked.at("prompt").get<size_t>()), 1);
  bool done = false;
  const Stopwatch watch;
  value_or_throw(engine.training().optim_step(trained, {}));
  const double stepped = watch.seconds();
  check(engine.adapters().clone(trained, *request.adapter));
  const double cloned = watch.seconds();
  value_or_throw(sampler->submit(std::move(request), [&](Result<engine::SampleResult> result) {
    value_or_throw(std::move(result));
    done = true;
  }));
  while (!done) sampler->step();
  json answer = watch.stop();
  check(engine.adapters().remove(engine::AdapterId("published")));
  answer["optim_step_ms"] = 1e3 * stepped;
  answer["publish_ms"] = 1e3 * (cloned - stepped);
  answer["first_token_ms"] = 1e3 * (answer.at("seconds").get<double>() - cloned);
  return answer;
}

json hello(const engine::Engine& engine, int threads) {
  const engine::ModelSpec& model = engine.model();
  return {
      {"program", "tuft"}, {"dtype", engine.weights_dtype()}, {"threads", threads}, {"parameters", model.parameters()}};
}

// Seconds of the device since the engine was made, for back ends that measure them beside the engine thread.
json device_seconds(engine::Engine& engine) {
  const engine::DeviceTimes times = engine.device_times();
  return {{"forward", to_seconds(times.forward)},
          {"backward", to_seconds(times.backward)},
          {"optim_step", to_seconds(times.optim_step)},
          {"step", to_seconds(times.step)}};
}

json answer(engine::Engine& engine, int threads, const json& asked) {
  const auto op = asked.at("op").get<std::string>();
  if (op == "hello") return hello(engine, threads);
  if (op == "device_seconds") return device_seconds(engine);
  if (op == "peaks") {
    return {{"gemm_gflops", gemm_gflops(threads)}, {"read_gigabytes_per_second", read_gigabytes_per_second(threads)}};
  }
  if (op == "train") return train(engine, asked);
  if (op == "train_tenants") return train_tenants(engine, asked);
  if (op == "fairness") return fairness(engine, asked);
  if (op == "decode") return decode(engine, asked);
  if (op == "sample") return sample(engine, asked);
  if (op == "publish") return publish(engine, asked);
  throw std::runtime_error("no such op: " + op);
}

struct Options {
  std::string model;
  int threads = 2;
  engine::WeightsDtype dtype = engine::WeightsDtype::kFloat32;
  std::string device;
  int64_t kv_bytes = 0;
  bool cuda_graphs = false;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--model") options.model = value;
    if (name == "--threads") options.threads = std::stoi(value);
    if (name == "--dtype" && value == "bf16") options.dtype = engine::WeightsDtype::kBfloat16;
    if (name == "--device") options.device = value;
    if (name == "--kv-bytes") options.kv_bytes = std::stoll(value);
    if (name == "--cuda-graphs") options.cuda_graphs = value == "yes";
  }
  if (options.model.empty()) throw std::runtime_error("--model DIRECTORY is missing");
  return options;
}

std::unique_ptr<engine::Engine> make_engine(const Options& options) {
  if (options.device.empty()) {
    engine::NativeOptions native;
    native.threads = options.threads;
    native.weights_dtype = options.dtype;
    return value_or_throw(engine::make_native_engine(options.model, native));
  }
#ifdef TUFT_TORCH
  engine::TorchOptions torch;
  torch.device = options.device;
  torch.threads = options.threads;
  torch.weights_dtype = options.dtype;
  torch.kv_bytes_max = options.kv_bytes;
  torch.capture_decode = options.cuda_graphs;
  return value_or_throw(engine::make_torch_engine(options.model, torch));
#else
  throw std::runtime_error("this build has no libtorch: build with the preset torch");
#endif
}

void serve(const Options& options) {
  const auto engine = make_engine(options);
  for (std::string line; std::getline(std::cin, line);) {
    json reply;
    try {
      reply = answer(*engine, options.threads, json::parse(line));
    } catch (const std::exception& error) {
      reply = {{"error", error.what()}};
    }
    std::cout << reply.dump() << std::endl;
  }
}

}  // namespace
}  // namespace tuft::bench

int main(int argc, char** argv) {
  try {
    tuft::bench::serve(tuft::bench::parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "tuft_engine_runner: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
