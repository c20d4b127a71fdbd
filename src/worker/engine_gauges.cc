#include "worker/engine_gauges.h"

#include <algorithm>
#include <utility>

#include "telemetry/metrics.h"

namespace tuft::worker {
namespace {

// Two readers (a scraper, the exporter) that come one right after the other see the same window.
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

void EngineGauges::observe_requests_and_steps() {
  const auto& metrics = telemetry::get_metrics();
  metrics.scheduler_requests.set_callback([this](const Observe& observe) { observe_requests(observe); });
  metrics.scheduler_last_step_age.set_callback([this](const Observe& observe) {
    observe(step_age(), {{"base_model", base_model_}});
  });
  metrics.scheduler_fairness_deficit.set_callback([this](const Observe& observe) {
    observe(state().deficit_max, {{"base_model", base_model_}});
  });
  metrics.worker_busy.set_callback([this](const Observe& observe) { observe(busy(), {{"base_model", base_model_}}); });
}

void EngineGauges::observe_kv_cache() {
  const auto& metrics = telemetry::get_metrics();
  metrics.kv_cache_usage.set_callback([this](const Observe& observe) {
    const engine::KvUsage kv = state().kv;
    if (kv_limit(kv) == 0) return;
    observe(static_cast<double>(kv.used) / static_cast<double>(kv_limit(kv)), {{"base_model", base_model_}});
  });
  metrics.kv_cache_blocks.set_callback([this](const Observe& observe) {
    const engine::KvUsage kv = state().kv;
    if (kv.block == 0) return;
    const auto blocks = [&](int64_t bytes) {
      const int64_t count = std::max<int64_t>(0, bytes) / kv.block;
      return static_cast<double>(count);
    };
    observe(blocks(kv.used), {{"base_model", base_model_}, {"state", "used"}});
    observe(blocks(kv.cached), {{"base_model", base_model_}, {"state", "cached"}});
    if (kv_limit(kv) == 0) return;
    observe(blocks(kv_limit(kv) - kv.used - kv.cached), {{"base_model", base_model_}, {"state", "free"}});
  });
  metrics.kv_cache_memory.set_callback([this](const Observe& observe) {
    const engine::KvUsage kv = state().kv;
    observe(static_cast<double>(kv.used), {{"base_model", base_model_}, {"state", "used"}});
    observe(static_cast<double>(kv.cached), {{"base_model", base_model_}, {"state", "cached"}});
    if (kv_limit(kv) == 0) return;
    observe(static_cast<double>(kv_limit(kv)), {{"base_model", base_model_}, {"state", "limit"}});
  });
  metrics.kv_cache_fragmentation.set_callback([this](const Observe& observe) {
    const engine::KvUsage kv = state().kv;
    if (kv.used == 0) return observe(0.0, {{"base_model", base_model_}});
    observe(static_cast<double>(kv.empty) / static_cast<double>(kv.used), {{"base_model", base_model_}});
  });
}

void EngineGauges::observe_adapters() {
  const auto& metrics = telemetry::get_metrics();
  metrics.lora_waiting.set_callback([this](const Observe& observe) {
    observe(static_cast<double>(state().waiting_for_adapter), {{"base_model", base_model_}});
  });
  metrics.lora_adapters.set_callback([this](const Observe& observe) {
    const AdapterPager::Counts counts = state().pager;
    observe(counts.training, {{"base_model", base_model_}, {"kind", "training"}});
    observe(counts.samplers, {{"base_model", base_model_}, {"kind", "sampler"}});
  });
  metrics.lora_adapters_paged.set_callback([this](const Observe& observe) {
    const AdapterPager::Counts counts = state().pager;
    observe(counts.paged_training, {{"base_model", base_model_}, {"kind", "training"}});
    observe(counts.paged_samplers, {{"base_model", base_model_}, {"kind", "sampler"}});
  });
  metrics.lora_pool_memory.set_callback([this](const Observe& observe) {
    const AdapterPager::Counts counts = state().pager;
    observe(static_cast<double>(counts.reserved), {{"base_model", base_model_}, {"state", "reserved"}});
    if (counts.limit == 0) return;
    observe(static_cast<double>(counts.limit), {{"base_model", base_model_}, {"state", "limit"}});
  });
  metrics.lora_memory.set_callback([this](const Observe& observe) {
    const engine::AdapterMemory memory = state().adapters;
    observe(static_cast<double>(memory.weights), {{"base_model", base_model_}, {"part", "weights"}});
    observe(static_cast<double>(memory.gradients), {{"base_model", base_model_}, {"part", "gradients"}});
    observe(static_cast<double>(memory.optimizer), {{"base_model", base_model_}, {"part", "optimizer"}});
  });
}

void EngineGauges::observe_work() {
  const auto& metrics = telemetry::get_metrics();
  metrics.training_model_flops.set_callback([this](const Observe& observe) {
    const PassTotals passes = state().passes;
    observe(passes.forward_flops, {{"base_model", base_model_}, {"pass", "forward"}});
    observe(passes.backward_flops, {{"base_model", base_model_}, {"pass", "backward"}});
  });
  metrics.sampling_model_flops.set_callback([this](const Observe& observe) {
    const StepTotals steps = state().steps;
    observe(steps.prefill_flops, {{"base_model", base_model_}, {"kind", "prefill"}});
    observe(steps.decode_flops, {{"base_model", base_model_}, {"kind", "decode"}});
  });
  metrics.sampling_model_bytes.set_callback([this](const Observe& observe) {
    const StepTotals steps = state().steps;
    observe(steps.bytes_read, {{"base_model", base_model_}, {"direction", "read"}});
    observe(steps.bytes_written, {{"base_model", base_model_}, {"direction", "write"}});
  });
  metrics.device_peak_flops.set_callback([this](const Observe& observe) {
    const double peak = state().peak_flops;
    if (peak > 0) observe(peak, {{"base_model", base_model_}});
  });
  metrics.device_time.set_callback([this](const Observe& observe) {
    const engine::DeviceTimes device = state().device;
    if (device.forward + device.backward + device.optim_step + device.step == 0) return;
    observe(to_seconds(device.forward), {{"base_model", base_model_}, {"work", "forward"}});
    observe(to_seconds(device.backward), {{"base_model", base_model_}, {"work", "backward"}});
    observe(to_seconds(device.optim_step), {{"base_model", base_model_}, {"work", "optim"}});
    observe(to_seconds(device.step), {{"base_model", base_model_}, {"work", "step"}});
  });
  metrics.training_mfu.set_callback([this](const Observe& observe) {
    if (const auto share = training_utilization()) observe(*share, {{"base_model", base_model_}});
  });
  metrics.sampling_mfu.set_callback([this](const Observe& observe) {
    if (const auto share = sampling_utilization()) observe(*share, {{"base_model", base_model_}});
  });
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
  const auto& metrics = telemetry::get_metrics();
  const std::initializer_list<const telemetry::Observable*> observed = {
      &metrics.scheduler_requests,   &metrics.scheduler_last_step_age, &metrics.scheduler_fairness_deficit,
      &metrics.worker_busy,          &metrics.kv_cache_usage,          &metrics.kv_cache_blocks,
      &metrics.kv_cache_memory,      &metrics.kv_cache_fragmentation,  &metrics.lora_adapters,
      &metrics.lora_memory,          &metrics.lora_adapters_paged,     &metrics.lora_pool_memory,
      &metrics.lora_waiting,         &metrics.training_model_flops,    &metrics.training_mfu,
      &metrics.sampling_model_flops, &metrics.sampling_model_bytes,    &metrics.sampling_mfu,
      &metrics.device_time,          &metrics.device_peak_flops};
  for (const telemetry::Observable* one : observed) one->set_callback({});
}

void EngineGauges::publish(const State& state) {
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

void EngineGauges::observe_requests(const Observe& observe) const {
  const size_t running = state().running;
  const size_t accepted = accepted_();
  observe(static_cast<double>(running), {{"base_model", base_model_}, {"state", "running"}});
  observe(static_cast<double>(accepted > running ? accepted - running : 0),
          {{"base_model", base_model_}, {"state", "waiting"}});
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
