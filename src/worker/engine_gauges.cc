#include "worker/engine_gauges.h"

#include <algorithm>
#include <utility>

#include "metrics/engine.h"
#include "metrics/sampling.h"
#include "metrics/training.h"
#include "metrics/workers.h"
#include "telemetry/instrument.h"

namespace tuft::worker {
namespace {

// Readers (a scraper, the exporter) that read within this time see the same window.
constexpr Nanos kWindow = kSecond / 2;

Nanos device_or_host(Nanos device, Nanos host) {
  return device > 0 ? device : host;
}

}  // namespace

EngineGauges::EngineGauges(std::string base_model, int64_t memory_bytes, const Clock& clock,
                           std::function<size_t()> accepted)
    : base_model_(std::move(base_model)),
      memory_bytes_(memory_bytes),
      clock_(clock),
      accepted_(std::move(accepted)),
      idle_since_(clock.monotonic()),
      window_begin_(idle_since_) {
  observe_requests_and_steps();
  observe_kv_cache();
  observe_adapters();
  observe_work();
}

// `read(state)` returns the value, if there is one.
template <typename Read>
void EngineGauges::add(const telemetry::Observable& instrument, Read read) {
  observed_.push_back(&instrument);
  instrument.set_callback([this, read](const Observe& observe) {
    if (const std::optional<double> value = read(state())) observe(*value, {{"base_model", base_model_}});
  });
}

// `read(state, put)` calls put(value of the label, number) for each series.
template <typename Read>
void EngineGauges::add(const telemetry::Observable& instrument, std::string_view label, Read read) {
  observed_.push_back(&instrument);
  instrument.set_callback([this, label, read](const Observe& observe) {
    read(state(), [&](std::string_view value, auto number) {
      observe(static_cast<double>(number), {{"base_model", base_model_}, {label, value}});
    });
  });
}

void EngineGauges::observe_requests_and_steps() {
  add(metrics::engine().scheduler_requests, "state", [this](const State& state, auto put) {
    const size_t accepted = accepted_();
    put("running", state.running);
    put("waiting", accepted > state.running ? accepted - state.running : 0);
  });
  add(metrics::engine().scheduler_samples, "state", [](const State& state, auto put) {
    put("pending", state.samples.pending);
    put("prefilling", state.samples.prefilling);
    put("decoding", state.samples.decoding);
  });
  add(metrics::engine().scheduler_last_step_age, [this](const State&) { return step_age(); });
  add(metrics::engine().scheduler_fairness_deficit, [](const State& state) { return state.deficit_max; });
  add(metrics::workers().busy, [this](const State&) { return busy(); });
}

void EngineGauges::observe_kv_cache() {
  add(metrics::engine().kv_cache_usage, [this](const State& state) -> std::optional<double> {
    if (kv_limit(state.kv) == 0) return std::nullopt;
    return static_cast<double>(state.kv.used) / static_cast<double>(kv_limit(state.kv));
  });
  add(metrics::engine().kv_cache_blocks, "state", [this](const State& state, auto put) {
    const engine::KvUsage& kv = state.kv;
    if (kv.block == 0) return;
    const auto blocks = [&](int64_t bytes) { return std::max<int64_t>(0, bytes) / kv.block; };
    put("used", blocks(kv.used));
    put("cached", blocks(kv.cached));
    if (kv_limit(kv) > 0) put("free", blocks(kv_limit(kv) - kv.used - kv.cached));
  });
  add(metrics::engine().kv_cache_memory, "state", [this](const State& state, auto put) {
    put("used", state.kv.used);
    put("cached", state.kv.cached);
    if (kv_limit(state.kv) > 0) put("limit", kv_limit(state.kv));
  });
  add(metrics::engine().kv_cache_fragmentation, [](const State& state) {
    return state.kv.used == 0 ? 0.0 : static_cast<double>(state.kv.empty) / static_cast<double>(state.kv.used);
  });
}

void EngineGauges::observe_adapters() {
  add(metrics::engine().lora_waiting,
      [](const State& state) { return static_cast<double>(state.waiting_for_adapter); });
  add(metrics::engine().lora_adapters, "kind", [](const State& state, auto put) {
    put("training", state.pager.training);
    put("sampler", state.pager.samplers);
  });
  add(metrics::engine().lora_adapters_paged, "kind", [](const State& state, auto put) {
    put("training", state.pager.paged_training);
    put("sampler", state.pager.paged_samplers);
  });
  add(metrics::engine().lora_adapters_waiting, "kind", [](const State& state, auto put) {
    put("training", state.pager.waiting_training);
    put("sampler", state.pager.waiting_samplers);
  });
  add(metrics::engine().lora_page_pending, [](const State& state) { return static_cast<double>(state.pager.leaving); });
  add(metrics::engine().lora_pool_memory, "state", [](const State& state, auto put) {
    put("reserved", state.pager.reserved);
    if (state.pager.limit > 0) put("limit", state.pager.limit);
  });
  add(metrics::engine().lora_memory, "part", [](const State& state, auto put) {
    put("weights", state.adapters.weights);
    put("gradients", state.adapters.gradients);
    put("optimizer", state.adapters.optimizer);
  });
}

void EngineGauges::observe_work() {
  add(metrics::training().model_flops, "pass", [](const State& state, auto put) {
    put("forward", state.passes.forward_flops);
    put("backward", state.passes.backward_flops);
  });
  add(metrics::sampling().model_flops, "kind", [](const State& state, auto put) {
    put("prefill", state.steps.prefill_flops);
    put("decode", state.steps.decode_flops);
  });
  add(metrics::sampling().model_bytes, "direction", [](const State& state, auto put) {
    put("read", state.steps.bytes_read);
    put("write", state.steps.bytes_written);
  });
  add(metrics::engine().device_peak_flops,
      [](const State& state) { return state.peak_flops > 0 ? std::optional(state.peak_flops) : std::nullopt; });
  add(metrics::engine().device_time, "work", [](const State& state, auto put) {
    const engine::DeviceTimes& device = state.device;
    if (device.forward + device.backward + device.optim_step + device.step == 0) return;
    put("forward", to_seconds(device.forward));
    put("backward", to_seconds(device.backward));
    put("optim", to_seconds(device.optim_step));
    put("step", to_seconds(device.step));
  });
  add(metrics::training().mfu, [this](const State&) { return training_utilization(); });
  add(metrics::sampling().mfu, [this](const State&) { return sampling_utilization(); });
}

std::optional<double> EngineGauges::training_utilization() {
  const Nanos now = clock_.monotonic();
  MutexLock lock(mutex_);
  const PassTotals& passes = state_.passes;
  const Nanos spent = device_or_host(state_.device.forward + state_.device.backward, passes.forward + passes.backward);
  return training_.take(passes.forward_flops + passes.backward_flops, spent, state_.peak_flops, now);
}

std::optional<double> EngineGauges::sampling_utilization() {
  const Nanos now = clock_.monotonic();
  MutexLock lock(mutex_);
  const StepTotals& steps = state_.steps;
  const Nanos spent = device_or_host(state_.device.step, steps.time);
  return sampling_.take(steps.prefill_flops + steps.decode_flops, spent, state_.peak_flops, now);
}

std::optional<double> EngineGauges::Utilization::take(double flops, Nanos spent, double peak, Nanos now) {
  if (now - begin_ < kWindow) return newest_;
  newest_.reset();
  if (peak > 0 && spent > spent_) newest_ = (flops - flops_) / (to_seconds(spent - spent_) * peak);
  begin_ = now;
  flops_ = flops;
  spent_ = spent;
  return newest_;
}

EngineGauges::~EngineGauges() {
  for (const telemetry::Observable* one : observed_) one->set_callback({});
}

void EngineGauges::update(const State& state) {
  MutexLock lock(mutex_);
  state_ = state;
}

void EngineGauges::work_ended(Nanos at) {
  MutexLock lock(mutex_);
  idle_ = true;
  idle_since_ = at;
}

void EngineGauges::work_arrived(Nanos at) {
  MutexLock lock(mutex_);
  idle_ = false;
  idle_sum_ += at - idle_since_;
  progress_ = at;
}

void EngineGauges::progressed(Nanos at) {
  MutexLock lock(mutex_);
  progress_ = at;
}

EngineGauges::State EngineGauges::state() const {
  MutexLock lock(mutex_);
  return state_;
}

double EngineGauges::step_age() const {
  const Nanos now = clock_.monotonic();
  MutexLock lock(mutex_);
  return idle_ ? 0.0 : to_seconds(std::max<Nanos>(0, now - progress_));
}

double EngineGauges::busy() {
  const Nanos now = clock_.monotonic();
  MutexLock lock(mutex_);
  if (now - window_begin_ < kWindow) return window_busy_;
  const Nanos idle = idle_sum_ + (idle_ ? now - idle_since_ : 0);
  const double share = to_seconds(idle - window_idle_) / to_seconds(now - window_begin_);
  window_busy_ = std::clamp(1.0 - share, 0.0, 1.0);
  window_begin_ = now;
  window_idle_ = idle;
  return window_busy_;
}

}  // namespace tuft::worker
