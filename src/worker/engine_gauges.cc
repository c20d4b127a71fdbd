#include "worker/engine_gauges.h"

#include <algorithm>
#include <utility>

#include "telemetry/metrics.h"

namespace tuft::worker {
namespace {

// Two readers (a scraper, the exporter) that come one right after the other see the same window.
constexpr Nanos kBusyWindow = kSecond / 2;

}  // namespace

EngineGauges::EngineGauges(std::string base_model, int64_t memory_bytes, const Clock& clock,
                           std::function<size_t()> accepted)
    : base_model_(std::move(base_model)),
      memory_bytes_(memory_bytes),
      clock_(clock),
      accepted_(std::move(accepted)),
      idle_since_(clock.monotonic()),
      window_begin_(idle_since_) {
  const auto& metrics = telemetry::get_metrics();
  metrics.scheduler_requests.set_callback([this](const Observe& observe) { observe_requests(observe); });
  metrics.scheduler_last_step_age.set_callback([this](const Observe& observe) {
    observe(step_age(), {{"base_model", base_model_}});
  });
  metrics.worker_busy.set_callback([this](const Observe& observe) { observe(busy(), {{"base_model", base_model_}}); });
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

EngineGauges::~EngineGauges() {
  const auto& metrics = telemetry::get_metrics();
  for (const telemetry::ObservableGauge* gauge :
       {&metrics.scheduler_requests, &metrics.scheduler_last_step_age, &metrics.worker_busy, &metrics.kv_cache_usage,
        &metrics.kv_cache_blocks, &metrics.kv_cache_memory, &metrics.lora_adapters, &metrics.lora_memory,
        &metrics.lora_adapters_paged, &metrics.lora_pool_memory}) {
    gauge->set_callback({});
  }
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
  if (now - window_begin_ < kBusyWindow) return window_busy_;
  const Nanos idle = idle_sum_ + (idle_ ? now - idle_since_ : 0);
  const double share = to_seconds(idle - window_idle_) / to_seconds(now - window_begin_);
  window_busy_ = std::clamp(1.0 - share, 0.0, 1.0);
  window_begin_ = now;
  window_idle_ = idle;
  return window_busy_;
}

}  // namespace tuft::worker
