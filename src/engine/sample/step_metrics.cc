#include "engine/sample/step_metrics.h"

#include <algorithm>
#include <new>
#include <utility>

#include "metrics/continuous_batching.h"
#include "metrics/engine.h"
#include "metrics/sampling.h"
#include "telemetry/instrument.h"
#include "telemetry/log.h"
#include "telemetry/trace.h"

namespace tuft::engine {
namespace {

double to_milliseconds(Nanos duration) {
  return static_cast<double>(duration) * 1e-6;
}

telemetry::BoundHistogram of_model(const telemetry::Histogram& histogram, const std::string& base_model) {
  return histogram.with({{"base_model", base_model}});
}

}  // namespace

std::string_view step_phase_name(StepPhase phase) {
  switch (phase) {
    case StepPhase::kPrefill:
      return "prefill";
    case StepPhase::kDecode:
      return "decode";
    case StepPhase::kMixed:
      break;
  }
  return "mixed";
}

StepMetrics::Phase::Phase(const std::string& base_model, StepPhase phase) {
  const telemetry::Label model = {"base_model", base_model};
  const telemetry::Label name = {"phase", step_phase_name(phase)};
  steps = metrics::engine().scheduler_steps.with({model, name});
  duration = metrics::engine().scheduler_step_duration.with({model, name});
  sequences = metrics::engine().scheduler_batch_requests.with({model, name});
}

StepMetrics::StepMetrics(const std::string& base_model, int batch_tokens, int64_t memory_bytes)
    : base_model_(base_model),
      batch_tokens_(batch_tokens),
      memory_bytes_(memory_bytes),
      phases_{Phase(base_model, StepPhase::kPrefill), Phase(base_model, StepPhase::kDecode),
              Phase(base_model, StepPhase::kMixed)},
      batch_tokens_in_step_(of_model(metrics::engine().scheduler_batch_tokens, base_model)),
      batch_fill_(of_model(metrics::engine().scheduler_batch_fill, base_model)),
      batch_adapters_(of_model(metrics::engine().scheduler_batch_adapters, base_model)),
      overhead_(of_model(metrics::engine().scheduler_step_overhead, base_model)),
      queue_(metrics::engine().scheduler_queue_duration.with({{"base_model", base_model}, {"kind", "sample"}})),
      inter_token_(of_model(metrics::sampling().inter_token_latency, base_model)),
      nonfinite_of_base_(metrics::sampling().nonfinite_logits.with({{"base_model", base_model}, {"weights", "base"}})),
      nonfinite_of_adapter_(
          metrics::sampling().nonfinite_logits.with({{"base_model", base_model}, {"weights", "adapter"}})),
      preemptions_(metrics::engine().scheduler_preemptions.with({{"base_model", base_model}})),
      recomputed_(metrics::engine().scheduler_recomputed_tokens.with({{"base_model", base_model}})),
      prefix_queries_(metrics::engine().prefix_cache_queries.with({{"base_model", base_model}})),
      prefix_hits_(metrics::engine().prefix_cache_hits.with({{"base_model", base_model}})),
      evictions_(metrics::engine().kv_cache_evictions.with({{"base_model", base_model}})),
      alloc_failures_(metrics::engine().kv_cache_alloc_failures.with({{"base_model", base_model}})),
      block_lifetime_(of_model(metrics::engine().kv_block_lifetime, base_model)),
      block_idle_(of_model(metrics::engine().kv_block_idle, base_model)),
      block_reuse_gap_(of_model(metrics::engine().kv_block_reuse_gap, base_model)),
      active_requests_(metrics::continuous_batching().active_requests_count.with({})),
      waiting_requests_(metrics::continuous_batching().waiting_requests_count.with({})),
      decode_prefill_ratio_(metrics::continuous_batching().decode_prefill_ratio.with({})),
      kv_memory_(metrics::continuous_batching().kv_cache_memory_bytes.with({})),
      kv_free_memory_(metrics::continuous_batching().kv_cache_free_memory_bytes.with({})),
      prefill_tokens_processed_(metrics::continuous_batching().prefill_tokens_processed.with({})),
      decode_tokens_processed_(metrics::continuous_batching().decode_tokens_processed.with({})),
      batch_fill_percentage_(metrics::continuous_batching().batch_fill_percentage.with({})),
      ttft_(metrics::continuous_batching().ttft_milliseconds.with({})),
      request_latency_(metrics::continuous_batching().request_latency_milliseconds.with({})) {}

void StepMetrics::scheduled(const Step& step, size_t active, size_t waiting) const {
  active_requests_.set(static_cast<double>(active));
  waiting_requests_.set(static_cast<double>(waiting));
  if (step.short_of_blocks) alloc_failures_.add(1);
  const auto tokens = static_cast<double>(step.prefill_tokens + step.decode_tokens);
  if (tokens == 0) return;
  // Kept from then on, also while nothing runs, as Transformers does: a scrape or push rarely coincides with the one
  // step in which a prompt runs.
  if (step.prefill_tokens > 0)
    decode_prefill_ratio_.set(static_cast<double>(step.decode_tokens) / static_cast<double>(step.prefill_tokens));
  prefill_tokens_processed_.add(static_cast<int64_t>(step.prefill_tokens));
  decode_tokens_processed_.add(static_cast<int64_t>(step.decode_tokens));
  batch_fill_percentage_.record(100.0 * tokens / batch_tokens_);
  batch_fill_.record(tokens / batch_tokens_);
  batch_tokens_in_step_.record(tokens);
  batch_adapters_.record(static_cast<double>(step.adapters));
}

void StepMetrics::stepped(const Step& step, Nanos duration) const {
  const Phase& phase = phases_[static_cast<size_t>(step.phase())];
  phase.steps.add(1);
  phase.duration.record(to_seconds(duration));
  phase.sequences.record(static_cast<double>(step.sequences));
}

void StepMetrics::overhead(Nanos duration) const {
  overhead_.record(to_seconds(duration));
}

void StepMetrics::kv_cache(const KvUsage& usage) const {
  kv_memory_.set(static_cast<double>(usage.used));
  if (usage.evicted > evicted_) evictions_.add(usage.evicted - std::exchange(evicted_, usage.evicted));
  const int64_t limit = usage.limit > 0 ? usage.limit : memory_bytes_;
  if (limit > 0) kv_free_memory_.set(static_cast<double>(std::max<int64_t>(0, limit - usage.used)));
}

void StepMetrics::kv_blocks(std::span<const KvBlockTime> times) const {
  for (const KvBlockTime& one : times) {
    const telemetry::BoundHistogram& histogram = one.what == KvBlockTime::What::kLifetime ? block_lifetime_
                                                 : one.what == KvBlockTime::What::kIdle   ? block_idle_
                                                                                          : block_reuse_gap_;
    histogram.record(to_seconds(one.time));
  }
}

void StepMetrics::idle() const {
  active_requests_.set(0);
  waiting_requests_.set(0);
}

void StepMetrics::prefix(size_t tokens, size_t cached) const {
  prefix_queries_.add(static_cast<int64_t>(tokens));
  if (cached > 0) prefix_hits_.add(static_cast<int64_t>(cached));
}

void StepMetrics::preempted(const telemetry::SpanContext& trace, size_t tokens) const {
  preemptions_.add(1);
  const telemetry::ContextScope scope(trace);
  telemetry::log_debug("scheduler.preempted", "the KV cache is full: a sequence was preempted",
                       {{"tuft.base_model", base_model_}, {"tuft.tokens", tokens}});
}

void StepMetrics::recomputed(size_t tokens) const {
  if (tokens > 0) recomputed_.add(static_cast<int64_t>(tokens));
}

void StepMetrics::queued(Nanos duration) const {
  queue_.record(to_seconds(duration));
}

void StepMetrics::first_token(Nanos since_arrival) const {
  ttft_.record(to_milliseconds(since_arrival));
}

void StepMetrics::ended(Nanos since_arrival) const {
  request_latency_.record(to_milliseconds(since_arrival));
}

void StepMetrics::tokens_after(Nanos since_the_ones_before, size_t tokens) const {
  inter_token_.record(to_seconds(since_the_ones_before), tokens);
}

void StepMetrics::nonfinite_logits(bool adapter) const {
  (adapter ? nonfinite_of_adapter_ : nonfinite_of_base_).add(1);
}

// The first of a reason makes its series, which needs memory.
void StepMetrics::rejected(const Error& error) const try {
  const std::string_view reason = error.reason.empty() ? error_code_name(error.code) : std::string_view(error.reason);
  metrics::engine().scheduler_rejections.add(1, {{"base_model", base_model_}, {"reason", reason}});
} catch (const std::bad_alloc&) {
}

}  // namespace tuft::engine
